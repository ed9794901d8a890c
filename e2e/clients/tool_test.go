package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico.dev/e2e/programs"
)

// tool is a program that is run once for each operation.
type tool struct {
	program string
	args    []string // before all further ones
	log     string   // the file
}

// run runs the tool and returns its output.
func (p *tool) run(t *testing.T, w *testEnv, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, p.program), append(slices.Clone(p.args), args...)...)
	cmd.Dir, cmd.Env = w.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}
	var stdout, stderr bytes.Buffer
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	fmt.Fprintf(log, "%s %s: %v\n%s%s", p.program, strings.Join(args, " "), err, &stdout, &stderr)
	if err != nil {
		t.Fatalf("command %s %s = %v, want exit status 0; see %s\n%s", p.program, strings.Join(args, " "), err, p.log, &stderr)
	}
	return stdout.String()
}

// says runs the tool and fails unless its output is exactly want.
func (p *tool) says(t *testing.T, w *testEnv, want string, args ...string) {
	t.Helper()
	if got := p.run(t, w, args...); got != want {
		t.Fatalf("output of %s %s = %q, want %q; see %s", p.program, strings.Join(args, " "), got, want, p.log)
	}
}
