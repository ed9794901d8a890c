package internal

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	external    = regexp.MustCompile(`^[a-z]+:`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Links of all Markdown pages lead to files, and to headings.
func TestLinksOfPages(t *testing.T) {
	const root = ".."
	anchors := map[string]map[string]bool{}
	links := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		anchors[path], links[path] = readMarkdown(string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(links) < 40 {
		t.Fatalf("%d pages, want at least 40", len(links))
	}
	for page, targets := range links {
		for _, target := range targets {
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v, want a file", page, target, err)
			} else if known := anchors[file]; anchor != "" && known != nil && !known[anchor] {
				t.Errorf("%s links to %s, want a heading with this anchor", page, target)
			}
		}
	}
}

// readMarkdown returns the anchors of the headings of a page, and its links to other files and within the page. Code is ignored.
func readMarkdown(text string) (anchors map[string]bool, links []string) {
	anchors = map[string]bool{}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
			continue
		}
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			heading = linkText.ReplaceAllString(strings.TrimSpace(heading), "$1")
			heading = notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
			anchors[strings.ReplaceAll(heading, " ", "-")] = true
		}
		for _, link := range pageLink.FindAllStringSubmatch(line, -1) {
			if !external.MatchString(link[1]) {
				links = append(links, link[1])
			}
		}
	}
	return anchors, links
}
