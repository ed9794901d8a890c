// Package rights checks the permissions of users who are not administrators, and compares them with kube-apiserver.
//
// testdata/personas.yaml contains the users. Each of them sends requests about every kind that kube-apiserver lists,
// with every verb, subresource and patch type, in the namespace in which it has permissions and in another one.
// Writes are dry runs, so that the order does not matter. testdata/scenarios.yaml contains sequences of requests. The
// answers of kube-apiserver are recorded in testdata/recorded.json.zst. The tests send the same requests to a front
// door and compare the answers.
package rights
