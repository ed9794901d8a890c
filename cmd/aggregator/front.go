package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"portico.dev/internal/front"
	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/tools/cli"
)

// frontOptions are the flags of the command front.
type frontOptions struct {
	config front.Config
	client cli.ClientFlags
	file   string // of the kubeconfig to write
}

func frontCommand() *cobra.Command {
	o, logs := frontOptions{config: front.Default()}, logging.Default()
	logs.Level = "error" // failures are responses to the client, which shows them
	cmd := &cobra.Command{
		Use:   "front [-- COMMAND [ARGUMENT]...]",
		Short: "Run a front for an existing cluster on this machine",
		Long: `Run a front for the API server of an existing cluster, with your own credentials and nothing installed in the cluster.

It listens on a loopback address with TLS and writes a kubeconfig, with which kubectl and other clients use the cluster as
before. A request for an aggregated API that is unavailable fails with the cause. Discovery and OpenAPI are answered from
memory while the API server does not answer, so that clients report its failure instead of an unknown resource.

With COMMAND, the front runs COMMAND with KUBECONFIG set, and ends with its exit status.`,
		Example: "  aggregator front\n  aggregator front --context staging -- kubectl get pods",
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := logs.New()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // flush buffered lines
			return o.run(cmd, args, log)
		},
	}
	fs := cmd.Flags()
	o.client.AddKubeconfig(fs)
	fs.StringVar(&o.file, "write-kubeconfig", "", "file for the kubeconfig of the front, which is removed at the end; default in a temporary directory")
	o.config.AddFlags(fs)
	logs.AddFlags(fs)
	return cmd
}

func (o *frontOptions) run(cmd *cobra.Command, command []string, log *zap.Logger) (err error) {
	namespace := ""
	if o.config.Client, namespace, err = o.client.Credentials(); err != nil {
		return err
	}
	f, err := front.New(o.config, log)
	if err != nil {
		return err
	}
	file, remove, err := o.writeKubeconfig(f, namespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	status, err := serveFront(cmd, f, file, command, log, o.config.MemoryLimit)
	if err == nil && status != 0 {
		return &cli.ExitError{Code: status, Err: fmt.Errorf("%s ended with status %d", command[0], status)}
	}
	return err
}

// writeKubeconfig writes the kubeconfig of a front, and returns the function that removes it.
func (o *frontOptions) writeKubeconfig(f *front.Front, namespace string) (file string, remove func() error, err error) {
	data, err := f.Kubeconfig(namespace)
	if err != nil {
		return "", nil, err
	}
	file, remove = o.file, func() error { return os.Remove(o.file) }
	if file == "" {
		dir, err := os.MkdirTemp("", "portico-front-")
		if err != nil {
			return "", nil, fmt.Errorf("directory of the kubeconfig: %w", err)
		}
		file, remove = filepath.Join(dir, "kubeconfig"), func() error { return os.RemoveAll(dir) }
	}
	if err := pki.WriteFile(file, data, 0o600); err != nil {
		return "", nil, fmt.Errorf("--write-kubeconfig: %w", err)
	}
	return file, remove, nil
}

// serveFront runs a front until its command ends, or without one until the command's context ends.
func serveFront(cmd *cobra.Command, f *front.Front, kubeconfig string, command []string, log *zap.Logger, memoryLimit string) (status int, err error) {
	ctx, end := context.WithCancel(cmd.Context())
	defer end()
	g := &run.Group{}
	g.Add(run.Member{Name: "front", Run: f.Run, Ready: f.Ready()})
	g.Add(run.Member{Name: "command", Run: func(ctx context.Context) (err error) {
		if len(command) == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is a front for %s. Ctrl-C stops it.\n\n  export KUBECONFIG=%s\n", f.URL(), f.Target(), kubeconfig)
			<-ctx.Done()
			return nil
		}
		defer end()
		stdio := run.Stdio{Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
		status, err = run.Command(ctx, command, stdio, "KUBECONFIG="+kubeconfig)
		return err
	}})
	return status, settling(ctx, log, memoryLimit, g.Run)
}
