// Package kinds compares every served kind with kube-apiserver, field by field.
//
// The recorded responses of kube-apiserver are in testdata. The tests send the same requests to a front door and
// compare the responses. With -real the responses come from a running server, and with -record they are recorded.
package kinds
