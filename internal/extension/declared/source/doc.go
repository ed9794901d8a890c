// Package source is where a declared resource's answers come from: http, file, prometheus, procfs, exec.
//
// Every source gives one JSON-like value (map[string]any, []any, string, bool, int64, float64, nil) or an error, within
// the deadline of its context and never more than a bounded number of bytes. None keeps a goroutine. Files that a source
// needs (CA, certificate, key, token) are opened when it is first asked, so that one that is not there yet is a source in
// trouble and not a server that does not start.
package source
