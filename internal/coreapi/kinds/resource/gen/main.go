// Command gen generates the validation of the kinds of resource.k8s.io from the tags of their Go types, with upstream's
// validation-gen.
//
// validation-gen writes a file into each package that it reads, and it must read the validation of metadata in
// k8s.io/apimachinery. So it runs on copies of that module and of this module's package.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	machinery = "k8s.io/apimachinery"
	// metadata is the package that validates metadata.
	metadata = machinery + "/pkg/apis/meta/v1/validation"
	output   = "zz_generated.validations.go"
	ours     = "internal/coreapi/kinds/resource"
)

// readOnly lists packages with types that have no rules, or rules that are not generated here.
var readOnly = []string{
	"k8s.io/api/core/v1", machinery + "/pkg/api/resource", machinery + "/pkg/runtime", machinery + "/pkg/types",
	machinery + "/pkg/util/intstr", "time",
}

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate validation:", err)
		os.Exit(1)
	}
}

func generate() (err error) {
	scratch, err := os.MkdirTemp("", "validation-gen-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	root, err := run(".", "go", "list", "-m", "-f", "{{.Dir}}", "portico.dev")
	if err != nil {
		return err
	}
	library, err := run(".", "go", "list", "-m", "-f", "{{.Dir}}", machinery)
	if err != nil {
		return err
	}
	module, copied, tool := filepath.Join(scratch, "module"), filepath.Join(scratch, "apimachinery"), filepath.Join(scratch, "validation-gen")
	if _, err := run(".", "go", "build", "-o", tool, "k8s.io/code-generator/cmd/validation-gen"); err != nil {
		return err
	}
	// Files in the module cache are read-only, and so are copies of them until their mode is changed.
	if err := errors.Join(os.CopyFS(copied, os.DirFS(library)), writable(copied)); err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum", filepath.Join(ours, "doc.go")} {
		if err := copyFile(filepath.Join(root, name), filepath.Join(module, name)); err != nil {
			return err
		}
	}
	if _, err := run(module, "go", "mod", "edit", "-replace", machinery+"="+copied); err != nil {
		return err
	}
	header := filepath.Join(scratch, "header")
	if err := os.WriteFile(header, []byte("//lint:file-ignore SA1019 the rules are upstream's, and so is what they call\n"), 0o644); err != nil {
		return err
	}
	args := []string{"--go-header-file", header, "--output-file", output}
	for _, pkg := range readOnly {
		args = append(args, "--readonly-pkg", pkg)
	}
	if _, err := run(module, tool, append(args, "portico.dev/"+ours, metadata)...); err != nil {
		return err
	}
	return copyFile(filepath.Join(module, ours, output), output)
}

func writable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		const owner = 0o200
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()|owner)
	})
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// run returns the output of a command.
func run(dir, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Stderr = dir, os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
