// Package testcmd runs Kubernetes' own tests of kubectl, the groups of test/cmd of k8s.io/kubernetes, against a front door with an
// unmodified kube-controller-manager. The scripts are read from the module cache, in the version that e2e/incumbent requires.
//
// Run it with:
//
//	go test -tags incumbent -timeout 90m ./e2e/testcmd
//
// It builds kube-controller-manager, which takes minutes the first time. The scripts need bash, curl, jq, openssl and sed.
package testcmd
