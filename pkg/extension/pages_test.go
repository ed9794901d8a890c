package extension_test

import (
	"os"
	"strings"
	"testing"
)

// TestThePageShowsWhatIsCompiled: the program in the developer's page is the one of e2e/outside, line by line, and short.
func TestThePageShowsWhatIsCompiled(t *testing.T) {
	program, err := os.ReadFile("../../e2e/outside/server/main.go")
	must(t, err)
	if lines := strings.Count(string(program), "\n"); lines > 60 {
		t.Errorf("the program has %d lines; more than sixty is not what was promised", lines)
	}
	quoted(t, string(program))
}

// TestThePageShowsTheView: so is the view of the page, without its imports.
func TestThePageShowsTheView(t *testing.T) {
	code, err := os.ReadFile("example_view_test.go")
	must(t, err)
	_, view, ok := strings.Cut(string(code), ")\n\n")
	if !ok {
		t.Fatal("example_view_test.go has no imports")
	}
	quoted(t, view)
}

// quoted checks that the page has code as a block.
func quoted(t *testing.T, code string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/extension-servers.md")
	must(t, err)
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/extension-servers.md quotes something else; copy the file into it")
	}
}
