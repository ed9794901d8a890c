//go:build !linux || !amd64

package programs

import (
	"errors"
	"fmt"
	"time"
)

// SetClock sets the clock of a process. It is supported only on Linux on amd64.
func (p *Process) SetClock(time.Duration) error {
	return fmt.Errorf("set the clock of %s: %w", p.name, errors.ErrUnsupported)
}
