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

// StartDev starts `aggregator dev` from a directory of built programs, on a free port, and waits until it has printed
// its kubeconfig. dir is its working directory and its home. kubeconfig belongs to an administrator. log receives its
// log output and may be nil. If StartDev returns a process, even with an error, the caller must finish it.
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

// Dev is StartDev for one test. The process ends with the test, and its output is shown if the test fails.
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

// Kubectl returns a function that runs a built kubectl and returns its output, including standard error. home
// contains its cache. path lists directories with plugins.
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

// kubernetes builds a Kubernetes program in the version that e2e/incumbent pins. The first build takes minutes.
func kubernetes(name string) recipe { return kubernetesFrom("incumbent", name) }

// kubernetesFrom is kubernetes with the versions of another module below e2e.
func kubernetesFrom(module, name string) recipe {
	return func(b *builder, to string) error {
		dir := filepath.Join(b.root, "e2e", module)
		list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off")
		version, err := list.Output()
		if err != nil {
			return fmt.Errorf("find its version: %w", err)
		}
		parts := strings.SplitN(strings.TrimSpace(string(version)), ".", 3)
		if len(parts) != 3 || parts[0] != "v1" {
			return fmt.Errorf("its module has version %q, want v1.x.y", version)
		}
		flags := stamp(strings.Join(parts, "."), parts[1])
		// Like the official releases, without cgo.
		return b.build(dir, []string{"CGO_ENABLED=0"}, "-ldflags", flags, "-o", to, "k8s.io/kubernetes/cmd/"+name)
	}
}
