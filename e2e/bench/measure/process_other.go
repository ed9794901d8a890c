//go:build !linux

package measure

import (
	"errors"
	"time"
)

var errElsewhere = errors.New("what another process uses is only known on Linux")

// CPU is the processor time that a process has used.
func CPU(int) (time.Duration, error) { return 0, errElsewhere }

// CheckDescriptors is an error if a process may not have that many files open.
func CheckDescriptors(int) error { return errElsewhere }

// CheckMemory is an error if the machine has not that many bytes to give.
func CheckMemory(int64) error { return errElsewhere }

// RSS is how many bytes of a process are in memory.
func RSS(int) (int64, error) { return 0, errElsewhere }

// PeakRSS is how many bytes of a process were in memory at once.
func PeakRSS(int) (int64, error) { return 0, errElsewhere }

// ResetPeakRSS makes PeakRSS begin anew.
func ResetPeakRSS(int) error { return errElsewhere }
