package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The entries of testdata/osv are from the Go vulnerability database, without their references and most of their symbols.

func TestWhatThePageLacks(t *testing.T) {
	osv := filepath.Join("testdata", "osv")
	zipped := filepath.Join(t.TempDir(), "vulndb.zip")
	pack(t, osv, zipped)
	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{"a directory", []string{"-file", osv}, []string{"GO-2022-1144", "GO-2023-1495", "GO-2023-2382"}},
		{"the zip", []string{"-file", zipped}, []string{"GO-2022-1144", "GO-2023-1495", "GO-2023-2382"}},
		{"an entry", []string{"-file", filepath.Join(osv, "ID", "GO-2023-2382.json")}, []string{"GO-2023-2382"}},
		{"an entry that has a row", []string{"-file", filepath.Join(osv, "ID", "GO-2023-2102.json")}, []string{}},
		{"an entry of another package", []string{"-file", filepath.Join(osv, "ID", "GO-2022-0493.json")}, []string{}},
		{"that package, asked for", []string{"-packages", "syscall", "-file", osv}, []string{"GO-2022-0493"}},
		{"older ones too", []string{"-since", "2014", "-packages", "crypto/tls", "-file", osv}, []string{"GO-2021-0154"}},
		{"later ones alone", []string{"-since", "2023", "-file", osv}, []string{"GO-2023-2382"}},
		{"a plain list", []string{"-file", filepath.Join("testdata", "list.txt")}, []string{"CVE-2026-49975", "GO-2023-2382"}},
		{"two at once, nothing twice", []string{"-file", osv, "-file", filepath.Join("testdata", "list.txt")},
			[]string{"CVE-2026-49975", "GO-2022-1144", "GO-2023-1495", "GO-2023-2382"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			status := run(append([]string{"-page", filepath.Join("testdata", "page.md"), "-o", "json"}, test.args...), &out, &complaints)
			if want := min(1, len(test.want)); status != want {
				t.Errorf("exit status = %d, want %d: %s", status, want, complaints.String())
			}
			var got []vulnerability
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("output of the program: %v, want JSON: %s", err, out.String())
			}
			ids := []string{}
			for _, v := range got {
				ids = append(ids, v.ID)
			}
			if !slices.Equal(ids, test.want) {
				t.Errorf("IDs of the report = %q, want %q", ids, test.want)
			}
		})
	}
}

// The report of a missing entry has the day, all names, the relevant packages, and the summary.
func TestReportOfMissingEntries(t *testing.T) {
	var out, complaints bytes.Buffer
	run([]string{"-page", filepath.Join("testdata", "page.md"), "-since", "2014", "-file", filepath.Join("testdata", "osv")}, &out, &complaints)
	want := [][]string{
		{"PUBLISHED", "ID", "ALIASES", "PACKAGES", "SUMMARY"},
		{"-", "GO-2022-1144", "CVE-2022-41717", "net/http golang.org/x/net/http2", "An attacker can cause excessive memory growth in a Go server accepting HTTP/2 requests"},
		{"-", "GO-2023-1495", "CVE-2022-41721", "golang.org/x/net/http2/h2c", "A request smuggling attack is possible when using MaxBytesHandler"},
		{"-", "GO-2023-2382", "CVE-2023-39326", "net/http/internal", "Denial of service via chunk extensions in net/http"},
		{"2022-05-25", "GO-2021-0154", "CVE-2014-7189", "crypto/tls", "When SessionTicketsDisabled is enabled"},
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("report = %s%s, want %d lines", out.String(), complaints.String(), len(want))
	}
	for i, line := range lines {
		for _, part := range want[i] {
			if !strings.Contains(line, part) {
				t.Errorf("line %q has no %q, want it", line, part)
			}
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page := filepath.Join("testdata", "page.md")
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no file":                {[]string{"-page", page}, "download https://vuln.go.dev/vulndb.zip"},
		"no page":                {[]string{"-page", filepath.Join(dir, "none.md"), "-file", page}, "read the page"},
		"a list of nothing":      {[]string{"-page", page, "-file", file("empty.txt", "nothing\n")}, "has no vulnerabilities"},
		"JSON that is no entry":  {[]string{"-page", page, "-file", file("other.json", `{"kind":"Pod"}`)}, "this is no OSV"},
		"JSON that is cut short": {[]string{"-page", page, "-file", file("short.json", `{"id":`)}, "unexpected end"},
		"the index":              {[]string{"-page", page, "-file", file("vulns.json", `[{"id":"GO-2023-2102","aliases":["CVE-2023-44487"]}]`)}, "give the entries and not their index"},
		"a zip that is none":     {[]string{"-page", page, "-file", file("vulndb.zip", "x")}, "not a valid zip file"},
		"another format":         {[]string{"-page", page, "-file", page, "-o", "yaml"}, "text and json are known"},
		"a file without -file":   {[]string{"-page", page, "vulndb.zip"}, "name files with -file"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			if status := run(test.args, &out, &complaints); status != 2 || !strings.Contains(complaints.String(), test.says) {
				t.Errorf("exit status = %d: %s; want 2 and %q", status, complaints.String(), test.says)
			}
		})
	}
}

func pack(t *testing.T, dir, to string) {
	t.Helper()
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	if err := z.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
