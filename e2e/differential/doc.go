// Package differential sends the same requests to two servers and compares the responses field by field. Known
// differences are listed with their reasons. A difference that is not listed is a failure, and so is a listed
// difference that does not occur. The requests are in the directory script, the recorded responses of kube-apiserver
// in testdata. See e2e/differential/README.md.
package differential
