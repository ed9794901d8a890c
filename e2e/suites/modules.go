package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// suite is a module with tests that use envtest.
type suite struct {
	module, version string
	// inside maps subdirectories of the module to other modules of the same version that it expects there.
	inside map[string]string
	// cluster is the directory of the packages that are not run because they need a cluster with nodes; empty if there are
	// none.
	cluster string
}

var suites = []suite{
	{module: "sigs.k8s.io/controller-runtime", version: "v0.25.2"},
	{module: "sigs.k8s.io/cluster-api", version: "v1.14.2", inside: map[string]string{"api": "sigs.k8s.io/cluster-api/api"}},
	{module: "sigs.k8s.io/karpenter", version: "v1.15.0", cluster: "test/suites"},
}

// needsCluster reports whether a package is not run because it needs a cluster with nodes.
func (s suite) needsCluster(path string) bool {
	return s.cluster != "" && strings.HasPrefix(path, s.module+"/"+s.cluster+"/")
}

// controlPlane is controller-runtime's package that starts both programs.
const controlPlane = "sigs.k8s.io/controller-runtime/pkg/internal/testing/controlplane"

// copyTo copies the module out of the module cache, which is read-only, unless an earlier run has copied it. It sets
// the Go version in the go.mod file of the copy to 1.26.0 and removes the toolchain line, so that no newer toolchain is required.
func (s suite) copyTo(ctx context.Context, to string, env []string) error {
	done := filepath.Join(to, ".copied")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := copyModule(ctx, s.module+"@"+s.version, to, env); err != nil {
		return err
	}
	for dir, module := range s.inside {
		if err := copyModule(ctx, module+"@"+s.version, filepath.Join(to, dir), env); err != nil {
			return err
		}
	}
	if _, err := goCommand(ctx, to, env, "mod", "edit", "-go=1.26.0", "-toolchain=none"); err != nil {
		return err
	}
	return os.WriteFile(done, nil, 0o644)
}

func copyModule(ctx context.Context, module, to string, env []string) error {
	outside, err := os.MkdirTemp("", "suites-") // a directory without go.mod
	if err != nil {
		return err
	}
	defer os.RemoveAll(outside)
	// The go command also downloads a module that requires a newer Go version, and then fails.
	_, refused := goCommand(ctx, outside, env, "mod", "download", module)
	cache, err := goCommand(ctx, outside, env, "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	from := filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(module))
	if _, err := os.Stat(from); err != nil {
		return errors.Join(fmt.Errorf("download %s: %w", module, err), refused)
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(data, []byte("#!")) {
			mode = 0o755 // a script: the module cache does not preserve modes
		}
		return os.WriteFile(target, data, mode)
	})
}

// testPackage is a package whose tests can start a control plane.
type testPackage struct {
	path, dir string
	ginkgo    bool // contains ginkgo specs in addition to tests
}

// packages returns the packages of a copy whose tests link controlPlane, sorted by path.
func packages(ctx context.Context, dir string, env []string) ([]testPackage, error) {
	const format = `{{if eq .Name "main"}}{{.ImportPath}} {{.Dir}} {{join .Deps ","}}{{end}}`
	out, err := goCommand(ctx, dir, env, "list", "-e", "-test", "-f", format, "./...")
	if err != nil {
		return nil, err
	}
	found := parsePackages(string(out))
	if len(found) == 0 {
		return nil, fmt.Errorf("no package in %s uses envtest", dir)
	}
	return found, nil
}

func parsePackages(list string) []testPackage {
	var found []testPackage
	for line := range strings.Lines(list) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		path, isTest := strings.CutSuffix(fields[0], ".test")
		if len(fields) < 3 || !isTest {
			continue
		}
		p := testPackage{path: path, dir: fields[1]}
		starts := false
		for dependency := range strings.SplitSeq(fields[2], ",") {
			name, _, _ := strings.Cut(dependency, " ") // of a package recompiled for a test: "path [path.test]"
			starts = starts || name == controlPlane
			p.ginkgo = p.ginkgo || name == "github.com/onsi/ginkgo/v2"
		}
		if starts {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b testPackage) int { return strings.Compare(a.path, b.path) })
	return found
}

// goCommand returns the standard output. The error contains standard error.
func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", args[0], err, complaints.Bytes())
	}
	return out, err
}
