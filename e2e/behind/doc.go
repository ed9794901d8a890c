// Package behind tests Portico's programs next to and behind a real kube-apiserver: the extension server registered there, the
// doctor, the conformance tests and the drills against it, and both front doors side by side. It also runs a real
// kube-controller-manager behind Portico's front door. The tests require the build tag incumbent, because building kube-apiserver
// takes minutes: `make incumbent`. The results of a run are in result.yaml, which package recorded checks. docs/incumbent.md
// describes them.
package behind
