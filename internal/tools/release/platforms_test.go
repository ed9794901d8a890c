package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var checkPlatforms = flag.Bool("platforms", false, "check the types of every program on every platform of a release: half a minute")

// listed is a package as the go command lists it for a platform.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports         []string
	ImportMap       map[string]string
	Standard        bool
	Module          *struct{ GoVersion string }
	Error           *struct{ Err string }
}

// Every program type-checks on every platform of a release, on any build machine. The test finds a declaration in a file for
// another platform only, or with another signature there, in half a minute. Compiling all takes an hour. Only declarations of
// other modules are checked.
func TestProgramsTypeCheckOnEveryPlatform(t *testing.T) {
	if !*checkPlatforms {
		t.Skip("it takes half a minute, and minutes with the race detector: only with -platforms, which .ci/release-checks sets")
	}
	programs := map[string][]string{} // by platform
	for _, target := range allTargets() {
		programs[target.os+"/"+target.arch] = append(programs[target.os+"/"+target.arch], "./cmd/"+target.program)
	}
	for platform, of := range programs {
		t.Run(strings.ReplaceAll(platform, "/", "-"), func(t *testing.T) {
			goos, arch, _ := strings.Cut(platform, "/")
			packages, err := listFor(goos, arch, of)
			if err != nil {
				t.Fatal(err)
			}
			checked, faults := checkTypes(packages, arch)
			if checked < 300 {
				t.Errorf("%d packages were checked, want at least 300", checked)
			}
			for _, fault := range faults {
				t.Error(fault)
			}
			t.Logf("%d packages of %s", checked, strings.Join(of, ", "))
		})
	}
}

// listFor lists programs and all their imports, imports first.
func listFor(goos, arch string, programs []string) ([]*listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,ImportMap,Standard,Module,Error"}, programs...)...)
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch, "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var all []*listed
	for decoder := json.NewDecoder(bufio.NewReader(bytes.NewReader(out))); ; {
		p := &listed{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// checkTypes checks packages in the order of the list, and returns their number and the faults: all faults of this module, the
// first one of each other module.
func checkTypes(packages []*listed, arch string) (checked int, faults []string) {
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	for _, p := range packages {
		if p.ImportPath == "unsafe" {
			continue
		}
		if p.Error != nil {
			faults = append(faults, p.ImportPath+": "+p.Error.Err)
			continue
		}
		ours := strings.HasPrefix(p.ImportPath, "portico.dev/")
		files, err := parseAll(fset, p, ours)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", p.ImportPath, err))
			continue
		}
		var wrong []error
		config := types.Config{
			IgnoreFuncBodies: !ours, Sizes: types.SizesFor("gc", arch), FakeImportC: true,
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if mapped := p.ImportMap[path]; mapped != "" {
					path = mapped
				}
				if found := done[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not there", path)
			}),
			Error: func(err error) {
				// A skipped function of another module may be the only use of an import.
				var typed types.Error
				unused := errors.As(err, &typed) && !ours && strings.Contains(typed.Msg, "imported and not used")
				if !unused && (ours || len(wrong) == 0) {
					wrong = append(wrong, err)
				}
			},
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		made, _ := config.Check(p.ImportPath, fset, files, nil)
		done[p.ImportPath] = made
		checked++
		for _, err := range wrong {
			faults = append(faults, fmt.Sprintf("%s: %v", p.ImportPath, err))
		}
	}
	return checked, faults
}

// parseAll parses the files of a package. Files of other modules lose their function bodies.
func parseAll(fset *token.FileSet, p *listed, whole bool) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(p.GoFiles)), make([]error, len(p.GoFiles))
	var wg sync.WaitGroup
	for i, name := range p.GoFiles {
		wg.Go(func() {
			files[i], errs[i] = parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if errs[i] == nil && !whole {
				for _, d := range files[i].Decls {
					if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
						f.Body = &ast.BlockStmt{Lbrace: f.Body.Lbrace, Rbrace: f.Body.Lbrace}
					}
				}
			}
		})
	}
	wg.Wait()
	return files, errors.Join(errs...)
}

type importerFunc func(string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// The test finds a file that only some platforms have, and one whose function has another signature there.
func TestPlatformSpecificErrorsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go":       "package main\n\nfunc main() { var n int = open(); _ = n }\n",
		"open_linux.go": "package main\n\nfunc open() int { return 1 }\n", "open_darwin.go": "package main\n\nfunc open() string { return \"\" }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{"linux": "", "darwin": "cannot use open() (value of type string)", "windows": "undefined: open"} {
		files := []string{"main.go"}
		if platform != "windows" {
			files = append(files, "open_"+platform+".go")
		}
		_, faults := checkTypes([]*listed{{ImportPath: "portico.dev/cmd/x", Dir: dir, GoFiles: files}}, "amd64")
		if got := strings.Join(faults, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("faults on %s = %q, want %q", platform, got, want)
		}
	}
}
