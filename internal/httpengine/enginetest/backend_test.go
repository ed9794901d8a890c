package enginetest_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documentation lists exactly the cases that tests skip with net/http.
func TestBackendLimitationTableMatchesSkippedTests(t *testing.T) {
	skips := regexp.MustCompile(`(?:NotOnLibraryBackend\(t, |NotOnLibrary\(t, n, |\brow: )"([^"]+)"`)
	skipped := map[string]bool{}
	for _, room := range []string{"httpengine", "transport", "proxy"} {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(room)), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range skips.FindAllStringSubmatch(string(text), -1) {
				skipped[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "## Towards backends")
	if !ok {
		t.Fatal("internal/httpengine/README.md has no section \"Towards backends\", want one")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, ok := strings.Cut(section, "| row | what the library does instead | source |\n|---|---|---|\n")
	if !ok {
		t.Fatal("section \"Towards backends\" has no table, want one")
	}
	var rows []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.TrimSpace(cells[1]) == "" {
			t.Errorf("row = %s, want 3 cells with a reason", line)
		}
		rows = append(rows, strings.TrimPrefix(cells[0], "| "))
	}
	slices.Sort(rows)
	if have := slices.Sorted(maps.Keys(skipped)); !slices.Equal(have, rows) {
		t.Errorf("skipped cases = %q, want the documented ones, %q", have, rows)
	}
}
