package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ofHTTP lists the Go packages that our implementation replaces. Packages below them are included.
var ofHTTP = []string{
	"net/http", "net/textproto", "crypto/tls", "golang.org/x/net/http2", "golang.org/x/net/http/httpguts",
}

const (
	mostBytes   = 16 << 20 // of one entry or list
	mostEntries = 200_000
)

// entry contains the required fields of an OSV entry (https://ossf.github.io/osv-schema) in the Go vulnerability
// database.
type entry struct {
	ID        string     `json:"id"`
	Published time.Time  `json:"published"`
	Withdrawn *time.Time `json:"withdrawn"`
	Aliases   []string   `json:"aliases"`
	Summary   string     `json:"summary"`
	Details   string     `json:"details"`
	Affected  []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Specific struct {
			Imports []struct {
				Path string `json:"path"`
			} `json:"imports"`
		} `json:"ecosystem_specific"`
	} `json:"affected"`
	listed bool // from a plain list without packages, which was selected manually
}

// vulnerability is a vulnerability without a row in the page.
type vulnerability struct {
	ID        string   `json:"id"`
	Aliases   []string `json:"aliases,omitempty"`
	Published string   `json:"published,omitempty"` // the date
	Packages  []string `json:"packages,omitempty"`
	Summary   string   `json:"summary,omitempty"`
}

var name = regexp.MustCompile(`\b(?:CVE-\d{4}-\d{4,}|GO-\d{4}-\d{4,})\b`)

// read reads a list in any of its formats.
func read(from string) ([]entry, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return readTree(os.DirFS(from))
	}
	if strings.HasSuffix(from, ".zip") {
		z, err := zip.OpenReader(from)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return readTree(z)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := bounded(f)
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return parse(trimmed)
	}
	return readList(text)
}

func bounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("more than %d bytes", mostBytes)
	}
	return text, err
}

// readTree reads the entries of a database: the files GO-….json in all directories.
func readTree(tree fs.FS) (all []entry, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".json" || !strings.HasPrefix(path.Base(name), "GO-") {
			return err
		}
		if len(all) == mostEntries {
			return fmt.Errorf("more than %d entries", mostEntries)
		}
		f, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := bounded(f)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		entries, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, entries...)
		return nil
	})
	return all, err
}

// parse decodes one entry or an array of entries.
func parse(text []byte) ([]entry, error) {
	var many []entry
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := json.Unmarshal(trimmed, &many); err != nil {
			return nil, err
		}
	} else {
		var one entry
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, err
		}
		many = []entry{one}
	}
	for i := range many {
		if many[i].ID == "" {
			return nil, errors.New("an entry without an id: this is no OSV")
		}
		if len(many[i].Affected) == 0 && many[i].Withdrawn == nil {
			return nil, fmt.Errorf("%s does not say which packages it is about: give the entries and not their index", many[i].ID)
		}
	}
	return many, nil
}

// readList reads a plain list with one vulnerability per line: names, followed by any text.
func readList(text []byte) (all []entry, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		names := name.FindAllString(line, -1)
		if strings.HasPrefix(line, "#") || len(names) == 0 {
			continue
		}
		last := strings.LastIndex(line, names[len(names)-1]) + len(names[len(names)-1])
		all = append(all, entry{ID: names[0], Aliases: names[1:], Summary: strings.Trim(line[last:], " \t,;:|-"), listed: true})
	}
	return all, lines.Err()
}

// lacks returns the entries about the given packages that no row of the page names, oldest first.
func lacks(page string, all []entry, packages []string, since int) []vulnerability {
	has := rows(page)
	lacking := []vulnerability{}
	seen := map[string]bool{}
	for _, e := range all {
		about := e.about(packages)
		names := append([]string{e.ID}, e.Aliases...)
		if e.Withdrawn != nil || len(about) == 0 && !e.listed || seen[e.ID] || year(names) < since ||
			slices.ContainsFunc(names, func(n string) bool { return has[n] }) {
			continue
		}
		seen[e.ID] = true
		v := vulnerability{ID: e.ID, Aliases: e.Aliases, Packages: about, Summary: e.summary()}
		if e.Published.Year() > 1 {
			v.Published = e.Published.UTC().Format(time.DateOnly)
		}
		lacking = append(lacking, v)
	}
	slices.SortStableFunc(lacking, func(a, b vulnerability) int {
		return cmp.Or(cmp.Compare(a.Published, b.Published), cmp.Compare(a.ID, b.ID))
	})
	return lacking
}

// rows returns the names in the first cells of the page's tables.
func rows(page string) map[string]bool {
	has := map[string]bool{}
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, "|")
		if !ok {
			continue
		}
		cell, _, _ := strings.Cut(rest, "|")
		for _, n := range name.FindAllString(cell, -1) {
			has[n] = true
		}
	}
	return has
}

// about returns the packages of e that are equal to, or below, one of packages.
func (e *entry) about(packages []string) (about []string) {
	for _, a := range e.Affected {
		paths := []string{}
		for _, i := range a.Specific.Imports {
			paths = append(paths, i.Path)
		}
		if len(paths) == 0 { // the whole module
			paths = append(paths, a.Package.Name)
		}
		for _, p := range paths {
			matters := slices.ContainsFunc(packages, func(of string) bool {
				return p == of || strings.HasPrefix(p, of+"/") || len(a.Specific.Imports) == 0 && strings.HasPrefix(of, p+"/")
			})
			if matters && !slices.Contains(about, p) {
				about = append(about, p)
			}
		}
	}
	return about
}

// summary returns a one-line summary. Old entries have no summary field.
func (e *entry) summary() string {
	if e.Summary != "" {
		return e.Summary
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(e.Details, "\n", " "), ". ")
	return first
}

// year returns the latest year in the names of CVEs, or in any name without CVEs.
func year(names []string) (latest int) {
	for _, prefix := range []string{"CVE-", "GO-"} {
		for _, n := range names {
			if rest, ok := strings.CutPrefix(n, prefix); ok && len(rest) > 4 {
				if y, err := strconv.Atoi(rest[:4]); err == nil {
					latest = max(latest, y)
				}
			}
		}
		if latest > 0 {
			return latest
		}
	}
	return latest
}
