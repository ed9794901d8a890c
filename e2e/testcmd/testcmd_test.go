//go:build incumbent

package testcmd

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/e2e/cluster"
	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

// suite is the script that runs the groups.
//
//go:embed suite.sh
var suite string

// suiteLimit bounds the run of all groups.
const suiteLimit = time.Hour

// unchecked are the groups without a check of the result, with the reason. e2e/upstream/README.md repeats them.
var unchecked = map[string]string{
	"run_multi_resources_tests": "reads a manifest from raw.githubusercontent.com",
}

// binaries is the directory of the programs.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, "aggregator", "kubectl", "kubectl-convert", "kube-controller-manager"))
}

func TestUpstreamKubectlGroupsPass(t *testing.T) {
	root := t.TempDir()
	copySuite(t, root)
	server := startServer(t, root)
	startControllerManager(t, root, server)

	groups, output := runSuite(t, root, server)
	if len(groups) == 0 {
		t.Fatalf("the suite ran no group, want at least one:\n%s", output)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if reason, ok := unchecked[name]; ok {
			t.Logf("group %s passed: %t; not checked, because it %s", name, groups[name], reason)
		} else if !groups[name] {
			t.Errorf("result of the group %s = failed, want passed", name)
		}
	}
	for name := range unchecked {
		if _, ran := groups[name]; !ran {
			t.Errorf("unchecked group %s did not run, want it run or removed from the list", name)
		}
	}
	t.Logf("%d groups ran", len(groups))
	if t.Failed() {
		t.Logf("output of the suite:\n%s", output)
	}
}

// copySuite copies the scripts and their files from the module cache, where they are read-only, into root.
func copySuite(t *testing.T, root string) {
	t.Helper()
	module := kubernetesModule(t)
	for _, dir := range []string{"hack", "test/cmd", "test/fixtures", "test/e2e/testing-manifests", "third_party/forked/shell2junit"} {
		if err := copyDir(filepath.Join(root, dir), filepath.Join(module, dir)); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(root, "_output", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl", "kubectl-convert"} {
		if err := os.Symlink(filepath.Join(binaries, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "suite.sh"), []byte(suite), 0o755); err != nil {
		t.Fatal(err)
	}
}

// kubernetesModule downloads k8s.io/kubernetes, if it is not there, and returns its directory in the module cache.
func kubernetesModule(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "portico.dev").Output()
	if err != nil {
		t.Fatalf("go list of the repository failed: %v, want no error", err)
	}
	download := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes")
	download.Dir, download.Env = filepath.Join(strings.TrimSpace(string(root)), "e2e", "incumbent"), append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	if err != nil {
		t.Fatalf("download of k8s.io/kubernetes failed: %v: %s, want no error", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil || module.Dir == "" {
		t.Fatalf("go mod download = %v: %s; want a directory", err, out)
	}
	return module.Dir
}

// copyDir copies a directory with files that the owner may write.
func copyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o755)
	})
}

// apiServer is the front door under test.
type apiServer struct {
	port       int
	kubeconfig string
}

// startServer starts a front door with the flags that hack/make-rules/test-cmd.sh gives to kube-apiserver.
func startServer(t *testing.T, root string) apiServer {
	t.Helper()
	var ports freeport.Ports
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(root, "service-accounts.key")
	if out, err := exec.Command("openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		t.Fatalf("openssl genrsa failed: %v: %s, want no error", err, out)
	}
	start(t, root, "aggregator", "serve", "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port), "--data-dir="+filepath.Join(root, "data"),
		"--authorization-mode=RBAC,AlwaysAllow", "--token-auth-file=hack/testdata/auth-tokens.csv", "--client-ca-file=hack/testdata/ca/ca.crt",
		"--enable-admission-plugins=LimitRanger,ResourceQuota",
		"--disable-admission-plugins=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,MutatingAdmissionWebhook,ValidatingAdmissionWebhook",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key, "--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.0.0.0/24")
	server := apiServer{port: port, kubeconfig: filepath.Join(root, "controllers.kubeconfig")}
	address := "https://127.0.0.1:" + strconv.Itoa(port)
	config := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "c", "user": {"token": "admin-token"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, address)
	if err := os.WriteFile(server.kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, address)
	// Two groups read the serving certificate where kube-apiserver writes it.
	for to, from := range map[string]string{"apiserver.crt": "serving.crt", "apiserver.key": "serving.key"} {
		if err := os.Symlink(filepath.Join("data", "pki", from), filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

// awaitReady waits until the server at address is ready.
func awaitReady(t *testing.T, address string) {
	t.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{Host: address, BearerToken: "admin-token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.Poll(nil, func() error {
		response, err := client.Get(address + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != 200 {
			return fmt.Errorf("/readyz: %s", response.Status)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// startControllerManager starts the controllers that the front door does not run itself.
func startControllerManager(t *testing.T, root string, server apiServer) {
	t.Helper()
	controllers := "*"
	for _, name := range cluster.OwnControllers() {
		controllers += ",-" + name
	}
	start(t, root, "kube-controller-manager", "--kubeconfig="+server.kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false",
		"--controllers="+controllers, "--cluster-signing-cert-file=hack/testdata/ca/ca.crt", "--cluster-signing-key-file=hack/testdata/ca/ca.key")
}

// start starts a program that ends with the test.
func start(t *testing.T, root, program string, args ...string) {
	t.Helper()
	p, err := programs.Start(program, root, []string{"HOME=" + root, "PATH=" + os.Getenv("PATH")}, io.Discard, filepath.Join(binaries, program), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Show(t)
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
}

var (
	groupStart  = regexp.MustCompile(`^Recording: (run_\w+)$`)
	groupFailed = regexp.MustCompile(`^Error when running (run_\w+)$`)
)

// runSuite runs the script. It returns the result of each group that ran, and the output of the script.
func runSuite(t *testing.T, root string, server apiServer) (groups map[string]bool, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "suite.sh")
	cmd.Dir = root
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root, "TMPDIR=" + root, "LANG=C", "TERM=xterm", "ALLOW_SKEW=true", "GOPATH=" + filepath.Join(root, "go"),
		"SECURE_API_PORT=" + strconv.Itoa(server.port), "KUBE_JUNIT_REPORT_DIR=" + filepath.Join(root, "junit"),
	}
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &printed, &printed, time.Minute
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("start of the suite failed: %v, want no error\n%s", err, printed.String())
	}
	groups = map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(printed.String()))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if match := groupStart.FindStringSubmatch(lines.Text()); match != nil {
			groups[match[1]] = true
		} else if match := groupFailed.FindStringSubmatch(lines.Text()); match != nil {
			groups[match[1]] = false
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed.String(), "Clean up complete") {
		t.Errorf("the suite ended early, want \"Clean up complete\":\n%s", printed.String())
	}
	return groups, printed.String()
}
