package behind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

// binaries is the directory of the programs; it is set before any test runs.
var binaries string

// ports are of servers that keep theirs over restarts.
var ports freeport.Ports

// needed are the programs that are built. With the tag incumbent they are more, and a run is recorded afterwards.
var (
	needed     = []string{"aggregator", "kubectl", "sample-apiserver"}
	afterwards = func(code int) int { return code }
)

func TestMain(m *testing.M) { os.Exit(afterwards(programs.Main(m, &binaries, needed...))) }

// patience bounds one program that is run to its end. All drills take less than twenty minutes.
const patience = 40 * time.Minute

// outcome is the output and the exit code of a program.
type outcome struct {
	stdout, stderr string
	code           int
}

func (o outcome) String() string {
	return fmt.Sprintf("exit status %d\n%s%s", o.code, o.stdout, o.stderr)
}

// runProgram runs a program of this repository to its end with a kubeconfig; an empty one means none.
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
		t.Fatalf("start of %s %q failed: %v, want it to start", program, args, err)
	}
	return out
}

// kubectl runs kubectl, which must succeed.
func kubectl(t *testing.T, kubeconfig, input string, args ...string) string {
	t.Helper()
	out := runProgram(t, kubeconfig, input, "kubectl", args...)
	if out.code != 0 {
		t.Fatalf("kubectl %q = %s, want exit code 0", args, out)
	}
	return out.stdout
}

// eventually calls try until it returns no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	began := time.Now()
	if err := programs.Poll(t.Context().Done(), try); err != nil {
		t.Fatalf("condition not met in time: %s: %v, want no error", what, err)
	}
	t.Logf("%s: after %s", what, time.Since(began).Round(10*time.Millisecond))
}

// freePort returns a free port of this machine: the extension server keeps it over restarts.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
