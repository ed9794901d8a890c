package e2e

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// longer adds the stories that .ci/tests runs apart from the test command of README.md.
var longer = flag.Bool("longer", false, "run the stories of local groups")

func TestStories(t *testing.T) { runStories(t, "testdata") }

// Local groups, with a real kubectl. Package e2e/testcmd has kubectl's own tests of them.
func TestStoriesOfLocalGroups(t *testing.T) {
	if !*longer {
		t.Skip("only with -longer, which .ci/tests sets")
	}
	runStories(t, "testdata/longer")
}

func runStories(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Setup:               setUp,
		Cmds:                commands(),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
	})
}
