// Package declared hosts resources that are written down in YAML instead of Go: where the answers come from, what in
// them is an object, and how it shows.
//
// A Set reads the files, asks every source at its own pace, and hands the host a list of resources. A request never
// waits for a source: it is answered from what the source said last. While a source fails, that answer stays, with a
// Warning that says how old it is; nothing else stops. Files that change are read again; one that has become wrong
// leaves what it said before in force.
//
// A source gives one JSON-like value (map[string]any, []any, string, bool, int64, float64, nil) or an error, within the
// deadline of its context and never more than a bounded number of bytes. None keeps a goroutine. Files that a source needs
// (CA, certificate, key, token) are opened at the first request, so that a missing file is an error of the source and does
// not keep the server from starting.
//
// form.go reads YAML and remembers line numbers, read*.go makes definitions of it, sources.go, exec.go and procfs.go fetch
// answers, path.go finds values in them, mapping.go makes objects, live.go keeps one resource current, and set.go all of
// them.
package declared
