//go:build incumbent

package behind

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

var update = flag.Bool("update", false, "write result.yaml")

// binaries is the directory of the programs; it is set before any test runs.
var binaries string

// ports are of servers that keep theirs over restarts.
var ports programs.Ports

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := programs.Main(m, &binaries, "aggregator", "extserver", "kubectl", "sample-apiserver", "kube-apiserver", "kube-controller-manager")
	if *update && code == 0 {
		if err := book.write(); err != nil {
			return failed(err)
		}
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// control starts a control plane for one test.
func control(t *testing.T, routing bool) *cluster.Cluster {
	t.Helper()
	k, err := cluster.New(cluster.Config{Programs: binaries, Dir: t.TempDir(), AggregatorRouting: routing, Ports: &ports})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	version, err := k.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book.version(version)
	return k
}

// patience bounds one program that is run to its end. All drills take less than twenty minutes.
const patience = 40 * time.Minute

// outcome is what a program printed, and how it ended.
type outcome struct {
	stdout, stderr string
	code           int
}

func (o outcome) String() string {
	return fmt.Sprintf("exit status %d\n%s%s", o.code, o.stdout, o.stderr)
}

// runProgram runs a program of ours to its end as the bearer of a kubeconfig; an empty one is nobody's.
func runProgram(t *testing.T, kubeconfig, input, program string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, program), args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TempDir(), bytes.NewBufferString(input), &stdout, &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "KUBECONFIG=" + kubeconfig}
	err := cmd.Run()
	out := outcome{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return out
}

// kubectl runs kubectl, which must succeed.
func kubectl(t *testing.T, kubeconfig, input string, args ...string) string {
	t.Helper()
	out := runProgram(t, kubeconfig, input, "kubectl", args...)
	if out.code != 0 {
		t.Fatalf("kubectl %q: %s", args, out)
	}
	return out.stdout
}

// eventually tries again until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	began := time.Now()
	if err := programs.Poll(t.Context().Done(), try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Logf("%s: after %s", what, time.Since(began).Round(10*time.Millisecond))
}
