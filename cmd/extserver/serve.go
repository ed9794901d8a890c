package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver"
	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/logging"
	"portico.dev/internal/run"
	"portico.dev/internal/run/memory"
)

// serveFlags holds the flags that are not options of the server.
type serveFlags struct {
	kubeconfig, authentication, authorization string
	logging                                   logging.Options
}

func serveCommand() *cobra.Command {
	flags := serveFlags{logging: logging.Default()}
	var o extserver.Options
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve metrics of this machine, of kubelets or from Prometheus, projects, and resources that YAML files declare",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := flags.logging.New()
			if err != nil {
				return err
			}
			o.Logger = log
			if err := flags.clients(&o); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				// The live heap is a few megabytes. Collecting it twice as often has no measurable cost, and keeps
				// the process under 25 MiB even when many clients connect at once.
				debug.SetGCPercent(50)
			}
			o.WhenReady = func() {
				if err := memory.ReleaseStartPages(); err != nil {
					log.Debug("failed to release the memory of the startup", zap.Error(err))
				}
			}
			server, err := extserver.New(o)
			if err != nil {
				return err
			}
			err = runNotifying(c.Context(), server, log)
			var refused *registration.RefusedError
			if errors.As(err, &refused) {
				// The user has to ask an administrator, who needs exactly these objects.
				if text, err := registration.YAML(refused.Objects); err == nil {
					_, _ = c.ErrOrStderr().Write(text)
				}
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig of the front door; required")
	f.StringVar(&flags.authentication, "authentication-kubeconfig", "", "kubeconfig for TokenReview and for the ConfigMap extension-apiserver-authentication (default --kubeconfig)")
	f.StringVar(&flags.authorization, "authorization-kubeconfig", "", "kubeconfig for SubjectAccessReview (default --kubeconfig)")
	flags.logging.AddFlags(f)
	o.AddFlags(f)
	return c
}

// runNotifying runs the server, and notifies the service manager when it is ready and when it stops.
func runNotifying(ctx context.Context, server *extserver.Server, log *zap.Logger) error {
	interrupted := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		if interrupted.Err() != nil {
			log.Info("stopping; a second signal ends the process at once")
		}
		return nil
	})
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error {
		select {
		case <-server.Ready():
			return run.NotifyServiceManager(ctx, log)
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

func (f serveFlags) clients(o *extserver.Options) error {
	if f.kubeconfig == "" {
		return errors.New("--kubeconfig is required: it says which front door vouches for callers")
	}
	for _, c := range []struct {
		file string
		into **rest.Config
	}{{f.kubeconfig, &o.Client}, {f.authentication, &o.AuthenticationClient}, {f.authorization, &o.AuthorizationClient}} {
		if c.file == "" {
			continue
		}
		var err error
		if *c.into, err = extserver.LoadClient(c.file); err != nil {
			return err
		}
	}
	return nil
}
