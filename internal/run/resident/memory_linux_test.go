package resident

import (
	"math"
	"testing"
)

func TestMemoryOfThisMachine(t *testing.T) {
	if got := memory(); got < 1<<20 || got > math.MaxInt64 {
		t.Errorf("this machine has %d bytes", got)
	}
}
