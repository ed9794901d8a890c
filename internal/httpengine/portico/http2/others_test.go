package http2_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// internal/httpengine/upstream-tests.md maps each test of Go's HTTP libraries to a Portico test. Tests in a new version of either source need a
// row. A renamed Portico test must not leave a stale row.
func TestUpstreamTestListIsComplete(t *testing.T) {
	if testing.Short() {
		t.Skip("reads sources only")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "upstream-tests.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{ // source directories by the name in the headings
		"golang.org/x/net/http2": filepath.Join(goSays(t, "list", "-m", "-f", "{{.Dir}}", "golang.org/x/net"), "http2"),
		"net/http":               filepath.Join(goSays(t, "env", "GOROOT"), "src", "net", "http"),
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	files := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w*)\(`)
	for _, section := range sections {
		heading, rows, _ := strings.Cut(section, "\n")
		from, file, ok := strings.Cut(heading, ", ")
		if !ok { // prose
			continue
		}
		if sources[from] == "" {
			t.Errorf("heading %q names an unknown source of tests, want a known one", heading)
			continue
		}
		files[heading] = true
		t.Run(heading, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(sources[from], file))
			if os.IsNotExist(err) {
				t.Skipf("%s is not there: the sources of %s are incomplete on this machine", file, from)
			}
			if err != nil {
				t.Fatal(err)
			}
			var theirs []string
			for _, m := range test.FindAllStringSubmatch(string(source), -1) {
				if m[1] != "TestMain" {
					theirs = append(theirs, m[1])
				}
			}
			for _, missing := range compareWithRows(t, rows, theirs) {
				t.Errorf("test %s has no row, want one", missing)
			}
		})
	}
	for _, one := range filesOfTheirs {
		if !files[one] {
			t.Errorf("file %s has no section, want one", one)
		}
	}
}

// filesOfTheirs must each have a section.
var filesOfTheirs = []string{
	"golang.org/x/net/http2, server_test.go", "golang.org/x/net/http2, server_api_test.go", "golang.org/x/net/http2, server_internal_test.go",
	"golang.org/x/net/http2, server_push_test.go", "golang.org/x/net/http2, transport_test.go", "golang.org/x/net/http2, transport_api_test.go",
	"golang.org/x/net/http2, transport_internal_test.go", "golang.org/x/net/http2, transport_configure_test.go",
	"golang.org/x/net/http2, clientconn_test.go", "golang.org/x/net/http2, http2_test.go", "golang.org/x/net/http2, flow_test.go",
	"net/http, serve_test.go", "net/http, transport_test.go", "net/http, request_test.go", "net/http, readrequest_test.go",
}

// compareWithRows returns the tests of theirs that no row names.
func compareWithRows(t *testing.T, rows string, theirs []string) (missing []string) {
	t.Helper()
	name, ours := regexp.MustCompile("`(Test\\w+)(\\*?)`"), regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`")
	rowed := map[string]int{}
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		if len(cells) != 3 || len(strings.Trim(cells[2], " |\n")) < 5 {
			t.Errorf("row = %s, want a test or a reason", row)
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[0], -1) {
			found := false
			for _, one := range theirs {
				if one == m[1] || m[2] == "*" && strings.HasPrefix(one, m[1]) {
					rowed[one]++
					found = true
				}
			}
			if !found {
				t.Errorf("row names %s%s, want a test of the source", m[1], m[2])
			}
		}
		for _, m := range ours.FindAllStringSubmatch(cells[2], -1) {
			if !defined(t, m[1], m[2]) {
				t.Errorf("row names %s.%s, want an existing test", m[1], m[2])
			}
		}
	}
	for _, one := range theirs {
		if n := rowed[one]; n > 1 {
			t.Errorf("test %s has %d rows, want 1", one, n)
		}
	}
	return slices.DeleteFunc(slices.Clone(theirs), func(one string) bool { return rowed[one] > 0 })
}

func goSays(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %s failed: %v, want no error", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// defined reports whether a package of internal contains a test. The package is named by its path below internal, or below a directory
// in it.
func defined(t *testing.T, room, test string) bool {
	t.Helper()
	var files []string
	for _, pattern := range []string{filepath.Join("..", "..", "..", room), filepath.Join("..", "..", "..", "*", room), filepath.Join("..", "..", "..", "*", "*", room)} {
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
