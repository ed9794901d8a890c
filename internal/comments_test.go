package internal

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fileName matches names of files in comments, with a path or without.
var fileName = regexp.MustCompile(`[\w./:@-]*\w\.(go|md|sh|txtar|proto)\b`)

// foreign are files of other projects.
var foreign = map[string]bool{
	"hack/make-rules/test-cmd.sh": true, // k8s.io/kubernetes
	"watchable_store.go":          true, // etcd
}

// TestFilesNamedInCommentsExist finds comments that name a file of this repository that was moved or deleted. A name is the end of a
// file's path.
func TestFilesNamedInCommentsExist(t *testing.T) {
	list, err := exec.Command("git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	ends := map[string]bool{}
	for _, file := range files {
		for end := file; ; {
			ends[end] = true
			_, rest, ok := strings.Cut(end, "/")
			if !ok {
				break
			}
			end = rest
		}
	}
	for _, file := range files {
		if filepath.Ext(file) != ".go" || strings.HasPrefix(filepath.Base(file), "zz_generated") {
			continue
		}
		src, err := os.ReadFile(filepath.Join("..", file))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		var s scanner.Scanner
		s.Init(set.AddFile(file, -1, len(src)), src, nil, scanner.ScanComments)
		for {
			pos, tok, text := s.Scan()
			if tok == token.EOF {
				break
			}
			if tok != token.COMMENT || strings.HasPrefix(text, "//go:") {
				continue
			}
			for _, name := range fileName.FindAllString(text, -1) {
				if strings.Contains(name, "://") || foreign[name] || name == "_test.go" {
					continue
				}
				if !ends[strings.TrimPrefix(name, "./")] {
					t.Errorf("%s: the comment names %s, which does not exist", set.Position(pos), name)
				}
			}
		}
	}
}
