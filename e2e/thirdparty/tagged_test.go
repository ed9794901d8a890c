//go:build !kubelet || !linux

package thirdparty

// tagged are the programs that only tests with a build tag need.
var tagged []string
