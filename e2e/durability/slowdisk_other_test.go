//go:build !linux

package durability

import (
	"errors"
	"time"
)

func slowDown([]string, func() time.Duration, func()) (int64, error) { return 0, errors.ErrUnsupported }
