//go:build !unix

package processors

import "time"

func used() (time.Duration, bool) { return 0, false }
