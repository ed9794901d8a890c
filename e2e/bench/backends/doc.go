// Package backends measures a front door in which a thousand APIServices, each with a separate backend, are
// registered within a few seconds: its memory and CPU in the following minutes. It also measures kube-apiserver if
// its programs are given.
package backends
