// Package declared hosts resources that are written down in YAML instead of Go: where the answers come from, what in
// them is an object, and how it shows.
//
// A Set reads the files, asks every source at its own pace, and hands the host a list of resources. A request never
// waits for a source: it is answered from what the source said last. While a source fails, that answer stays, with a
// Warning that says how old it is; nothing else stops. Files that change are read again; one that has become wrong
// leaves what it said before in force.
//
// The files: form.go reads YAML and remembers where everything stood, read*.go makes definitions of it, path.go and
// expression.go find things in an answer, mapping.go makes objects of items, live.go keeps one resource current, and
// set.go all of them.
package declared
