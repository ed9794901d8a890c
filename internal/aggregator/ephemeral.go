package aggregator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// Ephemeral runs a front door with storage in memory, in a temporary directory that is removed at the end, and runs
// command with KUBECONFIG and the given input and output. It ends with the command and returns its exit status.
// Without a command it runs until ctx ends. ready, if not nil, is called with the URL and the kubeconfig when the
// front door is ready. The kubeconfig is empty if --client-ca-file does not accept the administrator's certificate.
func Ephemeral(ctx context.Context, c Config, command []string, stdio run.Stdio, ready func(url, kubeconfig string), log *zap.Logger) (status int, err error) {
	dir, err := os.MkdirTemp("", "portico-")
	if err != nil {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil && removed != nil {
			err = fmt.Errorf("remove the data directory: %w", removed)
		}
	}()
	c.DataDir = filepath.Join(dir, "data")
	c.Embedded.Volatile, c.Embedded.NoServiceManager = true, true
	front, err := New(c, log)
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	g := &run.Group{}
	g.Add(run.Member{Name: "front door", Run: front.Run, Ready: front.Ready()})
	g.Add(run.Member{Name: "command", Run: func(ctx context.Context) error {
		noAdmin := requireAdminKubeconfig(c)
		if noAdmin != nil && len(command) > 0 {
			return noAdmin
		}
		if ready != nil && noAdmin != nil {
			ready(front.URL(), "")
		} else if ready != nil {
			ready(front.URL(), c.AdminKubeconfig())
		}
		if len(command) == 0 {
			<-ctx.Done()
			return nil
		}
		defer end()
		var err error
		status, err = run.Command(ctx, command, stdio, "KUBECONFIG="+c.AdminKubeconfig())
		return err
	}})
	return status, g.Run(ctx)
}
