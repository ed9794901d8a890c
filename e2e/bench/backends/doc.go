// Package backends measures a front door that a thousand APIServices are registered with in a few seconds, each with a
// backend of its own: the memory and the CPU of the minutes after that, beside kube-apiserver if its programs are given.
package backends
