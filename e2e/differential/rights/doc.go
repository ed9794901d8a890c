// Package rights asks a server what users who are no administrators may do, and compares it with kube-apiserver.
//
// testdata/personas.yaml has the users. Each of them is asked about every kind that kube-apiserver lists, with every verb,
// subresource and kind of patch, in the namespace where it has rights and in another one; writes are dry runs, so that the
// order does not matter. testdata/scenarios.yaml has what takes several requests. The answers of a kube-apiserver are kept
// in testdata/recorded.json.gz; the tests ask a front door the same and compare.
package rights
