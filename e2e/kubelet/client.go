package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

// Client runs kubectl.
type Client struct {
	// Programs is the directory of kubectl. Dir is its working directory and its home.
	Programs, Dir, Kubeconfig string
}

// Command returns kubectl with streams over WebSockets ("true") or SPDY ("false").
func (c *Client) Command(ctx context.Context, websockets string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Programs, "kubectl"), args...)
	cmd.Dir = c.Dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "KUBECONFIG=" + c.Kubeconfig,
		"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + websockets,
	}
	return cmd
}

// Kubectl runs kubectl to its end and returns its output, including standard error.
func (c *Client) Kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := c.Command(ctx, "true", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %q: %w: %s", args, err, out)
	}
	return string(out), nil
}

// kubectlIn is Kubectl over WebSockets or SPDY, and returns only standard output.
func (c *Client) kubectlIn(websockets, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	cmd := c.Command(ctx, websockets, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	return string(out), err
}

// typed returns a client with the same kubeconfig.
func (c *Client) typed(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", c.Kubeconfig))
	config.QPS, config.WarningHandler, config.Timeout = -1, rest.NoWarnings{}, time.Minute
	return kubernetes.NewForConfigOrDie(config)
}

// ReadUntil reads a stream to the end of a text.
func ReadUntil(t *testing.T, from io.Reader, wanted string) {
	t.Helper()
	var got []byte
	for b := make([]byte, 1); !bytes.HasSuffix(got, []byte(wanted)); {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("stream after %q: %v, want further data", got, err)
		}
		got = append(got, b[0])
	}
}

// eventually calls try until it returns no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := programs.Poll(nil, try); err != nil {
		t.Fatalf("condition not met in time: %s: %v, want no error", what, err)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
