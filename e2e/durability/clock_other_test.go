//go:build !linux || !amd64

package durability

import (
	"errors"
	"fmt"
	"time"
)

func (d *frontDoor) setClock(time.Duration) error {
	return fmt.Errorf("set the clock of a process: %w", errors.ErrUnsupported)
}
