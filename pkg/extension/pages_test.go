package extension_test

import (
	"os"
	"strings"
	"testing"
)

// TestDocPageContainsTheCompiledProgram: the developer's page contains the program of e2e/outside, and the program is short.
func TestDocPageContainsTheCompiledProgram(t *testing.T) {
	program, err := os.ReadFile("../../e2e/outside/server/main.go")
	must(t, err)
	if lines := strings.Count(string(program), "\n"); lines > 60 {
		t.Errorf("program has %d lines, want at most 60", lines)
	}
	quoted(t, string(program))
}

// TestDocPageContainsTheViewExample: the page contains the view without its imports.
func TestDocPageContainsTheViewExample(t *testing.T) {
	code, err := os.ReadFile("example_view_test.go")
	must(t, err)
	_, view, ok := strings.Cut(string(code), ")\n\n")
	if !ok {
		t.Fatal("example_view_test.go has no imports, want some")
	}
	quoted(t, view)
}

// quoted checks that the page contains code as a block.
func quoted(t *testing.T, code string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/extension-servers.md")
	must(t, err)
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/extension-servers.md lacks the code block, want a copy of the file in it")
	}
}
