package gateway

import (
	"flag"
	"os"
	"testing"
)

// Most tests start a front door and wait for it and its backends. Therefore more tests run in parallel than there are
// processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
