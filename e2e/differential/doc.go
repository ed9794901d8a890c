// Package differential sends the same requests to two servers and compares the responses field by field. Known differences
// are listed with their reasons; a difference that is not listed is a failure, and so is one that is listed and does not
// occur. The requests are in script, the responses of a kube-apiserver in testdata: see docs/differential.md.
package differential
