package e2e

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Setup:               setUp,
		Cmds:                commands(),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
	})
}
