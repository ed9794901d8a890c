package gateway

import (
	"flag"
	"os"
	"testing"
)

// Most tests have a front door of their own, and wait for it and its backends: more run at once than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
