package programs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var exportLine = regexp.MustCompile(`export KUBECONFIG=(\S+)`)

// StartDev starts `aggregator dev` from a directory of built programs, on a free port, and waits until it has said how to
// reach it. It works in dir, which is its home too; kubeconfig is an administrator's. log gets what it logs; it may be nil.
// Whoever gets a process finishes it, also when there is an error.
func StartDev(built, dir string, log io.Writer, args ...string) (p *Process, kubeconfig string, err error) {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	p, err = Start("aggregator dev", dir, env, log, filepath.Join(built, "aggregator"), append([]string{"dev", "--secure-port", "0"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	err = Poll(p.Exited(), func() error {
		match := exportLine.FindStringSubmatch(p.Output())
		if match == nil {
			return errors.New("it does not say how to reach it")
		}
		kubeconfig = match[1]
		return nil
	})
	if !filepath.IsAbs(kubeconfig) {
		kubeconfig = filepath.Join(dir, kubeconfig)
	}
	return p, kubeconfig, err
}

// starter is the part of testing.TB that Dev uses.
type starter interface {
	reporter
	Helper()
	Cleanup(func())
	Fatal(args ...any)
}

// Dev is StartDev for one test: the process ends with the test, and shows its output if the test fails.
func Dev(t starter, built, dir string, args ...string) (dev *Process, kubeconfig string) {
	t.Helper()
	dev, kubeconfig, err := StartDev(built, dir, nil, args...)
	if dev != nil {
		t.Cleanup(func() {
			dev.Finish(t)
			dev.Show(t)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dev, kubeconfig
}

// Kubectl runs a built kubectl, and returns what it prints, errors included. home has its cache; path has directories with plugins.
func Kubectl(built, home, kubeconfig string, path ...string) func(args ...string) (string, error) {
	path = append(append([]string{built}, path...), os.Getenv("PATH"))
	env := []string{"PATH=" + strings.Join(path, string(os.PathListSeparator)), "HOME=" + home, "KUBECONFIG=" + kubeconfig}
	return func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(built, "kubectl"), args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl %q: %w: %s", args, err, out)
		}
		return string(out), err
	}
}

// kubernetes is a program of the Kubernetes that e2e/incumbent pins, told its version. Building one the first time takes
// minutes.
func kubernetes(name string) recipe { return kubernetesFrom("incumbent", name) }

// kubernetesFrom is kubernetes with the requirements of another module below e2e.
func kubernetesFrom(module, name string) recipe {
	return func(b *builder, to string) error {
		dir := filepath.Join(b.root, "e2e", module)
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
		flags := stamp(strings.Join(parts, "."), parts[1])
		return b.build(dir, []string{"CGO_ENABLED=0"}, "-ldflags", flags, "-o", to, "k8s.io/kubernetes/cmd/"+name) // as its releases are built
	}
}
