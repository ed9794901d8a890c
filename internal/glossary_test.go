package internal

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// glossary has words that were names here once and told nobody anything, with the words that Kubernetes, net/http or etcd
// have for the same. They are not to become names again: of files, packages, or anything that Go code declares.
var glossary = map[string]string{
	"agenda":   "what is computed, such as probe schedule",
	"board":    "metrics cache",
	"council":  "replica verdicts",
	"damper":   "debouncer",
	"discreet": "redacting",
	"fate":     "error class",
	"frugal":   "interning codec",
	"herald":   "event recorder",
	"horizon":  "compact revision",
	"journey":  "attempts",
	"keeper":   "what it keeps: seat timer, document store",
	"lane":     "connection pool",
	"leash":    "upstream context",
	"leaver":   "disconnected client",
	"outlet":   "sink",
	"payer":    "debt cleaner",
	"rota":     "timer queue",
	"scene":    "request context",
	"scribe":   "status writer",
	"shelf":    "storage factory",
	"tidings":  "events",
	"vigil":    "timeout sweeper",
	"waive":    "remove the finalizer",
	"witness":  "observer",
	"yard":     "environment",
}

// Names are split into their words, so that newLane and lane_test.go have the word lane, and planet has not.
func TestGlossary(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	checked := 0
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if strings.Contains(name, "testdata/") {
			continue // what others wrote, or recorded
		}
		for _, found := range coinedWords(name) {
			t.Errorf("%s: a file is not called %q, but %s", name, found, glossary[found])
		}
		if filepath.Ext(name) != ".go" || strings.HasPrefix(filepath.Base(name), "zz_generated") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		checked++
		checkIdentifiers(t, name, source)
	}
	if checked == 0 {
		t.Fatal("no Go file was checked")
	}
}

func checkIdentifiers(t *testing.T, name string, source []byte) {
	t.Helper()
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	said := map[string]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return
		}
		if tok != token.IDENT || said[literal] {
			continue
		}
		for _, found := range coinedWords(literal) {
			said[literal] = true
			t.Errorf("%s: %s: the word for %q is: %s", files.Position(pos), literal, found, glossary[found])
		}
	}
}

// coinedWords returns the words of a name that are in the glossary, in the singular too.
func coinedWords(name string) (found []string) {
	for _, word := range splitName(name) {
		for _, form := range []string{word, strings.TrimSuffix(word, "s")} {
			if _, ok := glossary[form]; ok {
				found = append(found, form)
				break
			}
		}
	}
	return found
}

// splitName splits at what is no letter, and before a capital that follows a small letter.
func splitName(name string) []string {
	var spaced bytes.Buffer
	var last rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(last) || !unicode.IsLetter(r) {
			spaced.WriteByte(' ')
		}
		if unicode.IsLetter(r) {
			spaced.WriteRune(unicode.ToLower(r))
		}
		last = r
	}
	return strings.Fields(spaced.String())
}

func TestGlossarySplitsNames(t *testing.T) {
	for name, want := range map[string]string{
		"newLane": "lane", "internal/transport/lane_test.go": "lane", "planet": "", "Lanes": "lane", "httpLane2": "lane", "yardstick": "",
	} {
		if got := strings.Join(coinedWords(name), " "); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
