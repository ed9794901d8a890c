//go:build !linux

package measure

import (
	"errors"
	"time"
)

var errNotLinux = errors.New("what another process uses is only known on Linux")

// CPU returns the CPU time of a process.
func CPU(int) (time.Duration, error) { return 0, errNotLinux }

// CheckDescriptors returns an error if this process must not open the given number of files.
func CheckDescriptors(int) error { return errNotLinux }

// CheckMemory returns an error if less than the given number of bytes is available.
func CheckMemory(int64) error { return errNotLinux }

// RSS returns the resident memory of a process, in bytes.
func RSS(int) (int64, error) { return 0, errNotLinux }

// PeakRSS returns the peak resident memory of a process, in bytes.
func PeakRSS(int) (int64, error) { return 0, errNotLinux }

// ResetPeakRSS resets the peak.
func ResetPeakRSS(int) error { return errNotLinux }
