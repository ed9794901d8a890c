// Command kube-apiserver is the API server for controller-runtime's envtest: the front door with the command line of
// kube-apiserver. docs/envtest.md describes its use and the differences.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	if err := command().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "kube-apiserver",
		Short: "The front door with the command line of a kube-apiserver, for tests",
		Long: `The front door with the command line of a kube-apiserver, for controller-runtime's envtest.

No controllers of a kube-controller-manager run, unless --controllers names them: nothing is
collected as garbage, and namespaces are not finalized.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Get().GitVersion,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	cmd.SetVersionTemplate("Kubernetes {{.Version}} (portico " + version.Portico + ")\n")
	o.addFlags(cmd.Flags())
	return cmd
}

// shutdownGrace is the time for requests in progress after a signal. It is short, because tests wait for the process
// to exit and not for responses.
const shutdownGrace = 200 * time.Millisecond

// serve runs the front door until ctx ends. It keeps its files in a temporary subdirectory of the certificate
// directory.
func serve(ctx context.Context, config aggregator.Config, certDir string, log *zap.Logger) (err error) {
	own, err := os.MkdirTemp(certDir, "portico-")
	if err != nil {
		return fmt.Errorf("make a directory for the server's own files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own)) }()
	config.DataDir = filepath.Join(own, "data")
	if config.TLSCertFile == "" {
		pair, err := servingPair(certDir, own, config.BindAddress)
		if err != nil {
			return err
		}
		config.TLSCertFile, config.TLSPrivateKeyFile = pair.certFile, pair.keyFile
	}
	front, err := aggregator.New(config, log)
	if err != nil {
		return err
	}
	return front.Run(ctx)
}
