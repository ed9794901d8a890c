// Package kinds holds every kind that is served here against a kube-apiserver, field by field.
//
// A recording of a kube-apiserver's answers is kept in testdata; the tests ask a front door the same and compare. With
// -real the answers come from a server that runs, and with -record they are written down.
package kinds
