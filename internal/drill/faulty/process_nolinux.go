//go:build !linux

package faulty

import "os/exec"

func endWithParent(*exec.Cmd) {}
