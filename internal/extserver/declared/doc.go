// Package declared serves resources that are declared in YAML instead of Go: a data source, the objects in its data, and
// their presentation.
//
// A Set reads the files, queries every source periodically, and passes a list of resources to the host. Requests do not wait
// for a source; they are served from the last data. If a source fails, its last data remain available, and responses contain
// a warning with their age. Other resources are not affected. Changed files are read again. If a file becomes invalid, its
// previous content remains in effect.
//
// A source returns one JSON-like value (map[string]any, []any, string, bool, int64, float64, nil) or an error. It is bounded
// by the deadline of its context and by a limit on the number of bytes. Sources have no goroutines. Files that a source needs
// (CA, certificate, key, token) are opened at the first request, so that a missing file is an error of the source and does
// not prevent the server from starting.
//
// form.go reads YAML and tracks line numbers, read*.go parses definitions, sources.go, exec.go and procfs.go fetch data,
// path.go looks up values in the data, mapping.go creates objects, live.go updates one resource, and set.go manages all
// resources.
package declared
