package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// recipe is how one program is built into a file.
type recipe func(root, to string) error

// recipes are all programs by name.
var recipes = map[string]recipe{
	"aggregator":      ours("./cmd/aggregator"),
	"extserver":       ours("./cmd/extserver"),
	"kubectl-portico": ours("./cmd/kubectl-portico"),
	"kubectl":         kubectl,
	"kubectl-convert": kubernetesFrom("upstream", "kubectl-convert"),
	"mappers":         nested("e2e/mappers", "."),
	"prometheus":      prometheus,

	"kube-apiserver":          kubernetes("kube-apiserver"),
	"kube-controller-manager": kubernetes("kube-controller-manager"),
	"kube-scheduler":          kubernetes("kube-scheduler"),
	"kubelet":                 kubernetes("kubelet"),
	"kube-proxy":              kubernetes("kube-proxy"),

	"manager":   nested("e2e/clients/manager", "."),
	"installer": nested("e2e/clients/installer", "."),
	"operator":  ours("./e2e/clients/operator"),
	"informers": ours("./e2e/clients/informers"),

	"fetch": static("./e2e/thirdparty/fetch"),

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

// Build builds the named programs into dir, each as a file of its name.
func Build(dir string, names ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	for _, name := range names {
		build, ok := recipes[name]
		if !ok {
			return fmt.Errorf("build %s: no recipe", name)
		}
		if err := build(root, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// moduleRoot is the directory of our go.mod, wherever below it a test runs.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "portico.dev").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func ours(pkg string) recipe {
	return func(root, to string) error { return goTool(root, "build", "-buildvcs=false", "-o", to, pkg) }
}

// static builds a package of ours for containers that have nothing else.
func static(pkg string) recipe {
	return func(root, to string) error {
		return goToolWith([]string{"CGO_ENABLED=0"}, root, "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, pkg)
	}
}

// nested builds a package of a module below the root, with the versions that its go.mod pins.
func nested(dir, pkg string) recipe {
	return func(root, to string) error {
		return goTool(filepath.Join(root, dir), "build", "-buildvcs=false", "-o", to, pkg)
	}
}

func kubectl(root, to string) error {
	dir := filepath.Join(root, "e2e", "kubectl")
	stamp, err := kubectlStamp(dir)
	if err != nil {
		return err
	}
	return goTool(dir, "build", "-buildvcs=false", "-ldflags", stamp, "-o", to, ".")
}

// kubectlStamp is the linker flags that tell kubectl its version: module v0.37.2 is kubectl v1.37.2. Without them
// `kubectl version` knows nothing to compare the server with.
func kubectlStamp(dir string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl")
	list.Dir = dir
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

// stamp is the linker flags that tell a program of Kubernetes its version.
func stamp(version, minor string) string {
	var flags []string
	for _, set := range []string{
		"k8s.io/component-base/version.gitVersion=" + version,
		"k8s.io/component-base/version.gitMajor=1",
		"k8s.io/component-base/version.gitMinor=" + minor,
		"k8s.io/component-base/version.gitTreeState=clean",
		"k8s.io/client-go/pkg/version.gitVersion=" + version, // the User-Agent
	} {
		flags = append(flags, "-X "+set)
	}
	return "-s -w " + strings.Join(flags, " ")
}

func goTool(dir string, args ...string) error { return goToolWith(nil, dir, args...) }

func goToolWith(env []string, dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("go %s: %w", strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}

// tool is a program that a module below the root pins with a tool directive. The go command keeps such programs linked in its
// cache, so that building one again costs nothing; `go tool -n` builds it and prints where it is.
func tool(dir, pkg string) recipe {
	return func(root, to string) error {
		cmd := exec.Command("go", "tool", "-n", pkg)
		cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), "GOWORK=off")
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
		return os.Symlink(built, to)
	}
}
