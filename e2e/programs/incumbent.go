package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubernetes is a program of the Kubernetes that e2e/incumbent pins, told its version. Building one the first time takes
// minutes.
func kubernetes(name string) recipe {
	return func(root, to string) error {
		dir := filepath.Join(root, "e2e", "incumbent")
		list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		list.Dir = dir
		version, err := list.Output()
		if err != nil {
			return fmt.Errorf("find its version: %w", err)
		}
		parts := strings.SplitN(strings.TrimSpace(string(version)), ".", 3)
		if len(parts) != 3 || parts[0] != "v1" {
			return fmt.Errorf("its module has version %q, want v1.x.y", version)
		}
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", stamp(strings.Join(parts, "."), parts[1]), "-o", to, "k8s.io/kubernetes/cmd/"+name)
		build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0") // as its releases are built
		if out, err := build.CombinedOutput(); err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
		return nil
	}
}
