// Package differential asks two servers the same and compares what they answer, field by field. Differences that are known
// are listed with their reasons; a difference that is not listed is a failure, and so is one that is listed and does not
// occur. What is asked is in script, what a kube-apiserver answered in testdata: see docs/differential.md.
package differential
