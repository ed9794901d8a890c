package compat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChapterListsPassedSteps(t *testing.T) {
	p := &Party{Name: "a server", Version: "v1", Is: "It serves.", Steps: []Step{{What: "this"}, {What: "a|b", Differs: "not\nquite"}}}
	b := Open("Servers", p)
	if got := b.missed(); len(got) != 2 {
		t.Errorf("steps without a result before the test = %q, want 2", got)
	}
	for _, s := range p.Steps {
		if !b.Step(t, p, s.What, func(*testing.T) {}) {
			t.Errorf("step %q did not pass, want passed", s.What)
		}
	}
	if got := b.missed(); len(got) != 0 {
		t.Errorf("steps without a result after the test = %q, want none", got)
	}

	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+begin("Servers")+"\nold\n"+end("Servers")+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	chapter, err := b.render()
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(page, "Servers", chapter, false); err == nil {
		t.Error("compare with an old chapter returned no error, want one")
	}
	if err := compare(page, "Servers", chapter, true); err != nil {
		t.Fatal(err)
	}
	if err := compare(page, "Servers", chapter, false); err != nil {
		t.Error(err)
	}
	const want = "before\n<!-- begin Servers -->\n## Servers\n\n### a server v1\n\nIt serves.\n\n" +
		"| step | result | known difference |\n|---|---|---|\n| this | pass |  |\n| a\\|b | differs | not quite |\n<!-- end Servers -->\nafter\n"
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("the page is %q, want %q, %v", got, want, err)
	}
	if err := compare(page, "Clients", chapter, true); err == nil || !strings.Contains(err.Error(), "put them where the chapter belongs") {
		t.Errorf("compare with a page without the chapter = %v, want an error with the next step", err)
	}
}
