//go:build !linux

package kubelet

import (
	"errors"
	"os"
	"os/exec"
)

// terminal is made on Linux only.
type terminal struct{ *os.File }

var errNoTerminal = errors.New("only Linux's pseudo-terminals are known here")

func startOnTerminal(*exec.Cmd, uint16, uint16) (terminal, error) { return terminal{}, errNoTerminal }

func (terminal) resize(uint16, uint16) error { return errNoTerminal }
