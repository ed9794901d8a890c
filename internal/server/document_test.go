package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// e2e/attacks/security-tests.md lists the test for each attack. Every test that the page names must exist.
func TestSecurityTestsPageNamesExistingTests(t *testing.T) {
	text := namesOnlyTests(t, "../../e2e/attacks/security-tests.md")
	for row, last := range map[string]int{"A": 42, "B": 15, "C": 23, "D": 19, "E": 16, "G": 9} {
		for i := 1; i <= last; i++ {
			if n := strings.Count(string(text), fmt.Sprintf("\n| %s%d |", row, i)); n != 1 {
				t.Errorf("rows for %s%d in the list of security tests = %d, want 1", row, i, n)
			}
		}
	}
}

// internal/httpengine/README.md lists the test for each published vulnerability.
func TestVulnerabilityPageNamesExistingTests(t *testing.T) {
	text := namesOnlyTests(t, "../httpengine/README.md")
	rows := regexp.MustCompile(`(?m)^\| (CVE-\d{4}-\d+) \|`).FindAllStringSubmatch(text, -1)
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[row[1]] {
			t.Errorf("%s has two rows in internal/httpengine/README.md, want one", row[1])
		}
		seen[row[1]] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d vulnerabilities have rows in internal/httpengine/README.md, want at least 100", len(seen))
	}
}

// namesOnlyTests returns the text of a page and checks that every test it names exists.
func namesOnlyTests(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/0-9]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Fatalf("%d tests are named in %s, want at least 50", len(named), page)
	}
	for _, n := range named {
		if !defines(t, n[1], n[2]) {
			t.Errorf("%s names %s.%s, want a test that exists", page, n[1], n[2])
		}
	}
	return string(text)
}

// defines reports whether a package contains a test. The package is named by its path below internal, or below a directory in it or in that.
func defines(t *testing.T, room, test string) bool {
	t.Helper()
	patterns := []string{filepath.Join("..", room), filepath.Join("..", "*", room), filepath.Join("..", "*", "*", room)}
	if room == "e2e" || strings.HasPrefix(room, "e2e/") {
		patterns = []string{filepath.Join("..", "..", room)}
	}
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(pattern, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+test+"(") {
			return true
		}
	}
	return false
}
