package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// writes is how many writes a storm sees.
var writes = flag.Int("writes", 20_000, "writes in a run that counts lost ones")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := leaked(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaked finds goroutines that do not end. goleak waits a second or two, which on a busy machine is too short for goroutines
// that are about to end.
func leaked() (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}
