package e2e

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestStories(t *testing.T) { runStories(t, "testdata") }

func runStories(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Setup:               setUp,
		Cmds:                commands(),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
	})
}
