package differential

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
)

var (
	left      = flag.String("left", "", "kubeconfig of one server; default a front door of its own")
	right     = flag.String("right", "", "kubeconfig of the other; default a front door of its own, over an external etcd and with other flags")
	knownFile = flag.String("known", "", "file of known differences; default none")
	record    = flag.String("record", "", "write what the right server answers into this file, in place of holding the left one against what was written")
	directory = flag.String("programs", "", "directory of the aggregator to test; default one built from the tree")
)

// ours is true if no flag names other servers.
var ours bool

// asked holds the responses of both servers, for all tests.
var asked struct {
	steps       []step
	left, right []map[string]string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "d") // short, because a socket's path is
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	fronts, err := servers(dir)
	if err == nil {
		err = askBoth()
	}
	if err == nil {
		code = m.Run()
	}
	for _, p := range fronts {
		ended, stopping := p.Stop(os.Interrupt)
		if stopping != nil || ended != 0 {
			err = errors.Join(err, stopping, fmt.Errorf("a front door ended with %d\n%s", ended, p.Output()))
		}
	}
	if err != nil {
		return failed(err)
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// servers starts the servers that no flag names. The right one is a replica of the left one with as many differences as
// replicas may have: external etcd, another storage format, and no leadership, so that the left one's controllers create the
// objects.
func servers(dir string) (fronts []*programs.Process, err error) {
	if *left != "" && *right != "" {
		return nil, nil
	}
	if *left != "" || *right != "" {
		return nil, errors.New("give both -left and -right, or neither")
	}
	built := *directory
	if built == "" {
		built = dir
		if err := programs.Build(built, "aggregator"); err != nil {
			return nil, err
		}
	}
	ours = true
	socket := filepath.Join(dir, "etcd")
	start := func(name string, args ...string) (string, error) {
		home := filepath.Join(dir, name)
		if err := os.MkdirAll(home, 0o700); err != nil {
			return "", err
		}
		p, kubeconfig, err := startServe(filepath.Join(built, "aggregator"), home, args...)
		if p != nil {
			fronts = append([]*programs.Process{p}, fronts...) // the one that lends its etcd is stopped last
		}
		return kubeconfig, err
	}
	if *left, err = start("left", "--etcd-unix-socket", socket); err != nil {
		return fronts, err
	}
	if err := pki.CopyShared(filepath.Join(dir, "right", "data", "pki"), filepath.Join(dir, "left", "data", "pki")); err != nil {
		return fronts, fmt.Errorf("keys that both share: %w", err)
	}
	*right, err = start("right", "--etcd-servers", "unix://"+socket, "--storage-media-type", "application/json",
		"--enable-priority-and-fairness=true", "--goaway-chance", "0.02", "--request-timeout", "50s", "--logging-format", "json")
	return fronts, err
}

var openLine = regexp.MustCompile(`the front door is open.*"url": ?"(https://[^"]+)"`)

// startServe starts a front door without dev's extension server, and with the recorded flags of kube-apiserver. kubeconfig is
// an administrator's.
func startServe(program, home string, args ...string) (p *programs.Process, kubeconfig string, err error) {
	data := filepath.Join(home, "data")
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	p, err = programs.Start("aggregator serve", home, env, nil, program, append([]string{"serve", "--data-dir", data,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--access-log=false", "--cors-allowed-origins", `^https://console\.example\.com$`}, args...)...)
	if err != nil {
		return nil, "", err
	}
	var url string
	if err := programs.Poll(p.Exited(), func() error {
		match := openLine.FindStringSubmatch(p.Output())
		if match == nil {
			return errors.New("it does not say where it listens\n" + p.Output())
		}
		url = match[1]
		return nil
	}); err != nil {
		return p, "", err
	}
	made := exec.Command(program, "kubeconfig", "--data-dir", data, "--user", "portico-admin", "--group", "system:masters", "--server", url)
	out, err := made.Output()
	if err != nil {
		return p, "", fmt.Errorf("make a kubeconfig: %w", err)
	}
	kubeconfig = filepath.Join(home, "kubeconfig")
	return p, kubeconfig, os.WriteFile(kubeconfig, out, 0o600)
}

func askBoth() (err error) {
	if asked.steps, err = steps(); err != nil {
		return err
	}
	if asked.left, err = askOne(*left, asked.steps); err != nil {
		return err
	}
	asked.right, err = askOne(*right, asked.steps)
	return err
}

// The responses of both servers are the same, except for the known differences.
func TestDifferential(t *testing.T) {
	var list []known
	if *knownFile != "" {
		read(t, *knownFile, &list)
	}
	judge(t, compare(asked.steps, asked.left, asked.right), list)
}

// judge fails for every difference without an explanation, and for every explanation without a difference.
func judge(t *testing.T, found []difference, list []known) {
	t.Helper()
	unexplained, idle := explain(found, list)
	for _, d := range unexplained {
		t.Errorf("unexplained difference: %s, want none", d)
	}
	for _, part := range idle {
		t.Errorf("explanation without a difference: %s, want none", part)
	}
	for _, k := range list {
		if fault := k.fault(); fault != "" {
			t.Errorf("known difference %q %q is listed %s, want a valid entry", k.Steps, k.places(), fault)
		}
	}
	t.Logf("%d requests, %d differences, %d of them explained", len(asked.steps), len(found), len(found)-len(unexplained))
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("decoding %s failed: %v, want no error", file, err)
	}
}
