package coreapi

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const coreapiPath = "portico.dev/internal/coreapi"

// levels are the floors inside coreapi: the root assembles, lists of groups name groups, groups are made of what kinds share
// (registry), and that of parts that stand for themselves. A package not named here has the level of the one above it.
var levels = map[string]int{
	"columns": 0, "defaults": 0, "selectable": 0, "validate": 0, "allocation": 0, "encryption": 0, "hooks": 0,
	"definitions": 0, "openapidocs": 0,
	"quota": 1, "crds": 1, "admission": 1,
	"registry": 2, "admission/plugins": 2,
	"kinds/*": 3, "kinds": 4, "kinds/cluster": 5,
	".": 6, "openapidocs/gen": 7,
}

func level(pkg string) (int, bool) {
	if n, ok := levels[pkg]; ok {
		return n, true
	}
	if strings.HasPrefix(pkg, "kinds/") {
		return levels["kinds/*"], true
	}
	parent, _, nested := strings.Cut(pkg, "/")
	n, ok := levels[parent]
	return n, ok && nested
}

// Imports inside coreapi go downward: from a package to those of lower levels.
func TestImportsInsideGoDownward(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		from := filepath.ToSlash(filepath.Dir(path))
		at, known := level(from)
		if !known {
			t.Errorf("package %s has no level; give it one here", from)
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			to, inside := strings.CutPrefix(name, coreapiPath)
			if !inside {
				continue
			}
			to = strings.TrimPrefix(to, "/")
			if to == "" {
				to = "."
			}
			if below, _ := level(to); below >= at {
				t.Errorf("%s imports %s (level %d) from level %d", path, to, below, at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
