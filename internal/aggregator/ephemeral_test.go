package aggregator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

func TestEphemeralReturnsTheCommandsExitCode(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range []struct {
		situation, script string
		status            int
	}{
		{"success", `test -s "$KUBECONFIG" && echo well`, 0},
		{"failure", "exit 7", 7},
		{"a signal", "kill -TERM $$", 128 + 15},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var out strings.Builder
			config := Default()
			config.SecurePort, config.AccessLog = 0, false
			status, err := Ephemeral(t.Context(), config, []string{"sh", "-c", c.script}, run.Stdio{Stdout: &out, Stderr: &out}, nil, zap.NewNop())
			if err != nil || status != c.status {
				t.Errorf("Ephemeral = %d, %v; want %d and no error: %s", status, err, c.status, out.String())
			}
			if c.status == 0 && out.String() != "well\n" {
				t.Errorf("output of the command = %q, want \"well\\n\"", out.String())
			}
		})
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("directory for temporary files = %v, %v; want it empty", left, err)
	}
}

func TestEphemeralWithMissingCommandReturnsError(t *testing.T) {
	t.Parallel()
	config := Default()
	config.SecurePort, config.AccessLog = 0, false
	_, err := Ephemeral(t.Context(), config, []string{filepath.Join(t.TempDir(), "missing")}, run.Stdio{}, nil, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("Ephemeral with a missing command: error = %v, want one that names the command", err)
	}
}

func TestEphemeralStopsWhenContextIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	config := Default()
	config.SecurePort, config.AccessLog = 0, false
	status, err := Ephemeral(ctx, config, nil, run.Stdio{}, func(string, string) { cancel() }, zap.NewNop())
	if status != 0 || err != nil {
		t.Errorf("Ephemeral that is cancelled = %d, %v; want 0 and no error", status, err)
	}
}
