package faults

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// writes is how many writes a storm sees.
var writes = flag.Int("writes", 20_000, "writes in a run that counts lost ones")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}
