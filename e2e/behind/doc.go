// Package behind runs our programs beside and behind a real kube-apiserver: the extension server registered there, the doctor,
// the conformance examination and the drills against it, and both front doors side by side. It also runs a real
// kube-controller-manager behind our front door. Its tests need the build tag incumbent, because building a kube-apiserver
// takes minutes: `make incumbent`. What came of a run is result.yaml, which package recorded checks; docs/incumbent.md tells it.
package behind
