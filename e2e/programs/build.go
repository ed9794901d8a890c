package programs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// recipe builds one program into a file. If the program is already built, only the go command's check remains.
type recipe func(b *builder, to string) error

// recipes contains all programs by name.
var recipes = map[string]recipe{
	"aggregator":      ours("./cmd/aggregator"),
	"extserver":       ours("./cmd/extserver"),
	"kubectl-portico": ours("./cmd/kubectl-portico"),
	"kubectl":         kubectl,
	"kubectl-convert": kubernetesFrom("upstream", "kubectl-convert"),
	"mappers":         nested("e2e/mappers", "."),
	"prometheus":      prometheus("prometheus"),
	"promtool":        prometheus("promtool"),

	"kube-apiserver":          kubernetes("kube-apiserver"),
	"kube-controller-manager": kubernetes("kube-controller-manager"),
	"kube-scheduler":          kubernetes("kube-scheduler"),
	"kubelet":                 kubernetes("kubelet"),
	"kube-proxy":              kubernetes("kube-proxy"),

	"manager":   nested("e2e/clients/manager", "."),
	"installer": nested("e2e/clients/installer", "."),
	"operator":  nested("e2e", "./clients/operator"),
	"informers": nested("e2e", "./clients/informers"),

	"fetch": static("./thirdparty/fetch"),

	"sample-apiserver":   tool("e2e/thirdparty/sampleapiserver", "k8s.io/sample-apiserver"),
	"metrics-server":     tool("e2e/thirdparty/metricsserver", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
	"test-adapter":       tool("e2e/thirdparty/custommetrics", "sigs.k8s.io/custom-metrics-apiserver/test-adapter"),
	"prometheus-adapter": tool("e2e/thirdparty/prometheusadapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter"),
	"keda-adapter":       tool("e2e/thirdparty/keda", "github.com/kedacore/keda/v2/cmd/adapter"),
	"keda-operator":      tool("e2e/thirdparty/keda", "github.com/kedacore/keda/v2/cmd/operator"),
	"kwok":               tool("e2e/thirdparty/kwok", "sigs.k8s.io/kwok/cmd/kwok"),

	"konnectivity-server": tool("e2e/thirdparty/konnectivity", "sigs.k8s.io/apiserver-network-proxy/cmd/server"),
	"konnectivity-agent":  tool("e2e/thirdparty/konnectivity", "sigs.k8s.io/apiserver-network-proxy/cmd/agent"),
	"etcdctl":             tool("e2e/thirdparty/etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
	"h2spec":              tool("e2e/thirdparty/h2spec", "github.com/summerwind/h2spec/cmd/h2spec"),
}

// Stories lists the programs that the tests of package e2e run.
var Stories = []string{"aggregator", "extserver", "kubectl-portico", "kubectl", "mappers"}

// Shared is the directory, relative to the root of the module, in which programs are linked once for each state of
// the tree.
const Shared = "bin/programs"

// Build places the named programs in dir, each as a file with its name. It reuses programs that another package or an
// earlier run has linked. Concurrent builds in different processes wait for each other.
func Build(dir string, names ...string) error { return BuildWithProgress(nil, dir, names...) }

// BuildWithProgress is Build with a progress line for each program that shows the number of compiled packages. If
// progress is nil, it prints nothing.
func BuildWithProgress(progress io.Writer, dir string, names ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	linked := filepath.Join(root, filepath.FromSlash(Shared))
	if err := os.MkdirAll(linked, 0o755); err != nil {
		return err
	}
	lock, err := fileutil.LockFile(filepath.Join(linked, ".lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("wait for other builds: %w", err)
	}
	defer lock.Close()
	for _, name := range names {
		build, ok := recipes[name]
		if !ok {
			return fmt.Errorf("build %s: no recipe", name)
		}
		b := &builder{root: root, program: name, progress: progress}
		err := build(b, filepath.Join(linked, name))
		b.end(err)
		if err == nil && linked != dir {
			err = place(filepath.Join(linked, name), filepath.Join(dir, name))
		}
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// place makes a program available under another name. The copy does not change when the program is built again.
func place(program, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if target, err := os.Readlink(program); err == nil {
		return os.Symlink(target, to)
	}
	if os.Link(program, to) == nil {
		return nil
	}
	// The directories are on different file systems.
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// moduleRoot returns the directory of our go.mod, from any directory below it.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "portico.dev").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// withoutDebugger omits what only a debugger reads. It takes a third of the time to link a program.
const withoutDebugger = "-ldflags=-w"

func ours(pkg string) recipe {
	return func(b *builder, to string) error { return b.build(b.root, nil, withoutDebugger, "-o", to, pkg) }
}

// static builds a package of the module e2e for containers without other files.
func static(pkg string) recipe {
	return func(b *builder, to string) error {
		return b.build(filepath.Join(b.root, "e2e"), []string{"CGO_ENABLED=0"}, "-ldflags", "-s -w", "-o", to, pkg)
	}
}

// nested builds a package of a module below the root, with the versions in its go.mod.
func nested(dir, pkg string) recipe {
	return func(b *builder, to string) error {
		return b.build(filepath.Join(b.root, dir), nil, withoutDebugger, "-o", to, pkg)
	}
}

func kubectl(b *builder, to string) error {
	dir := filepath.Join(b.root, "e2e", "kubectl")
	stamp, err := kubectlStamp(dir)
	if err != nil {
		return err
	}
	return b.build(dir, nil, "-ldflags", stamp, "-o", to, ".")
}

// kubectlStamp returns the linker flags that set the version of kubectl: module v0.37.2 is kubectl v1.37.2. Without
// them, `kubectl version` cannot compare the versions of client and server.
func kubectlStamp(dir string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl")
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find its version: %w", err)
	}
	parts := strings.SplitN(strings.TrimSpace(string(out)), ".", 3)
	if len(parts) != 3 || parts[0] != "v0" {
		return "", fmt.Errorf("its module has version %q, want v0.x.y", out)
	}
	return stamp("v1."+parts[1]+"."+parts[2], parts[1]), nil
}

// stamp returns the linker flags that set the version of a Kubernetes program.
func stamp(version, minor string) string {
	var flags []string
	for _, set := range []string{
		"k8s.io/component-base/version.gitVersion=" + version,
		"k8s.io/component-base/version.gitMajor=1",
		"k8s.io/component-base/version.gitMinor=" + minor,
		"k8s.io/component-base/version.gitTreeState=clean",
		"k8s.io/client-go/pkg/version.gitVersion=" + version, // for the User-Agent
	} {
		flags = append(flags, "-X "+set)
	}
	return "-s -w " + strings.Join(flags, " ")
}

// tool builds a program that a module below the root pins with a tool directive. The go command caches the linked
// program, so that another build costs nothing. `go tool -n` builds it and prints its path.
func tool(dir, pkg string) recipe {
	return func(b *builder, to string) error {
		cmd := exec.Command("go", "tool", "-n", pkg)
		cmd.Dir, cmd.Env = filepath.Join(b.root, dir), append(os.Environ(), "GOWORK=off")
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			return errors.Join(fmt.Errorf("go tool -n %s: %w", pkg, err), errors.New(complaints.String()))
		}
		built := strings.TrimSpace(string(out))
		if info, err := os.Stat(built); err != nil || info.IsDir() {
			return fmt.Errorf("go tool -n %s said %q, which is no program", pkg, built)
		}
		if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(built, to)
	}
}
