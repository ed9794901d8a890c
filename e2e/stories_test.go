package e2e

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// longer adds the stories of local groups.
var longer = flag.Bool("longer", false, "run the stories of local groups")

// shortStories are the stories that go test -short runs: the main promises of both programs.
var shortStories = []string{"discovery_dead_backends", "extserver_metrics", "front", "namespaces", "tour", "watch"}

func TestStories(t *testing.T) {
	p := testscript.Params{Dir: "testdata"}
	if testing.Short() {
		for _, name := range shortStories {
			p.Files = append(p.Files, filepath.Join(p.Dir, name+".txtar"))
		}
		p.Dir = ""
	}
	runStories(t, p)
}

// Local groups, with a real kubectl. Package e2e/testcmd has kubectl's own tests of them.
func TestStoriesOfLocalGroups(t *testing.T) {
	if !*longer {
		t.Skip("only with -longer, which .ci/tests sets")
	}
	runStories(t, testscript.Params{Dir: "testdata/longer"})
}

func runStories(t *testing.T, p testscript.Params) {
	p.Setup, p.Cmds, p.RequireUniqueNames, p.RequireExplicitExec = setUp, commands(), true, true
	testscript.Run(t, p)
}

// skipIfShort skips a test that starts programs and is not about a main promise.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs; go test without -short runs it")
	}
}
