//go:build !unix

package faulty

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("processes cannot be stopped on this operating system")

func stopProcess(*os.Process) error     { return errNoSignals }
func continueProcess(*os.Process) error { return nil }
