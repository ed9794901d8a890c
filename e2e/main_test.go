package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// binaries is the directory of the programs under test, set once before any test runs.
var binaries string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "portico-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	return m.Run()
}

// build puts the programs into dir. The flags that change compilation are those of go test itself, so that packages which
// it has compiled already are not compiled again.
func build(dir string) error {
	if err := goTool("..", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), "./cmd/aggregator", "./cmd/extserver"); err != nil {
		return err
	}
	stamp, err := kubectlStamp()
	if err != nil {
		return err
	}
	if err := goTool("kubectl", "build", "-buildvcs=false", "-ldflags", stamp, "-o", filepath.Join(dir, "kubectl"), "."); err != nil {
		return err
	}
	if err := goTool("mappers", "build", "-buildvcs=false", "-o", filepath.Join(dir, "mappers"), "."); err != nil {
		return err
	}
	return buildPrometheus(dir)
}

// kubectlStamp is the linker flags that tell kubectl its version: module v0.37.2 is kubectl v1.37.2. Without them
// `kubectl version` knows nothing to compare the server with.
func kubectlStamp() (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl")
	list.Dir = "kubectl"
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the version of kubectl: %w", err)
	}
	parts := strings.SplitN(strings.TrimSpace(string(out)), ".", 3)
	if len(parts) != 3 || parts[0] != "v0" {
		return "", fmt.Errorf("kubectl module has version %q, want v0.x.y", out)
	}
	version := "v1." + parts[1] + "." + parts[2]
	var flags []string
	for _, set := range []string{
		"k8s.io/component-base/version.gitVersion=" + version,
		"k8s.io/component-base/version.gitMajor=1",
		"k8s.io/component-base/version.gitMinor=" + parts[1],
		"k8s.io/component-base/version.gitTreeState=clean",
		"k8s.io/client-go/pkg/version.gitVersion=" + version, // the User-Agent
	} {
		flags = append(flags, "-X "+set)
	}
	return "-s -w " + strings.Join(flags, " "), nil
}

func goTool(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("go %s: %w", strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}
