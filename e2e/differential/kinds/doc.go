// Package kinds compares every kind that is served here with a kube-apiserver, field by field.
//
// The recorded responses of a kube-apiserver are in testdata; the tests send the same requests to a front door and compare.
// With -real the responses come from a running server, and with -record they are recorded.
package kinds
