package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/pki"
	"portico.dev/internal/tools/console"
	"portico.dev/internal/tools/drill"
	"portico.dev/internal/version"
)

type consoleOptions struct {
	ClientFlags
	Options
	port     int
	interval time.Duration
	open     bool
	tui      bool
	drills   string
}

func consoleCommand(with Options) *cobra.Command {
	o := consoleOptions{Options: with}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the APIServices of a cluster on a page in the browser",
		Long: `Serve a page about the APIServices of a cluster, until the command is interrupted: request paths, the verdicts of every
replica, endpoints, changes and their reasons, namespaces that do not terminate, APIRoutes, and reports of the doctor.

The page is served on 127.0.0.1 only. The printed link works once, within ten minutes, in one browser. The page uses the
rights of the kubeconfig; apart from drills it only reads.

With --tui the same is shown in the terminal, without drills.

The command works with any API server, and needs only read rights. The page lists the sources that it cannot read.`,
		Example: `  aggregator console
  aggregator console --context kind-test --port 8080
  aggregator console --tui`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	o.Add(fs)
	fs.BoolVar(&o.tui, "tui", false, "show the console in the terminal instead of in a browser")
	fs.IntVar(&o.port, "port", 0, "port on 127.0.0.1 for the page; default a free port")
	fs.DurationVar(&o.interval, "interval", 2*time.Second, "polling interval, at least 1s")
	fs.BoolVar(&o.open, "open", false, "open the page in the default browser")
	fs.StringVar(&o.drills, "drills-on", "", "name of the kubeconfig context, to allow the page to run drills on that cluster; drills break only extension servers that they create")
	for _, other := range []string{"port", "open", "drills-on"} {
		cmd.MarkFlagsMutuallyExclusive("tui", other)
	}
	return cmd
}

func (o *consoleOptions) run(ctx context.Context, out, terminal io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.QPS = -1 // the console limits its own rate
	cfg := console.Config{Client: config, Context: o.contextName(), Port: o.port, Interval: o.interval, Timeout: o.Timeout, Log: terminal}
	if o.tui {
		cfg.Log = nil // a log would overwrite the screen
		return console.Terminal(ctx, cfg, os.Stdin, os.Stdout)
	}
	if err := o.addDrills(&cfg); err != nil {
		return err
	}
	c, err := console.New(cfg)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "The console of %s:\n\n  %s\n\nThe link works once. Ctrl-C ends the console.\n", cfg.Context, c.URL()); err != nil {
		return errors.Join(err, c.Close())
	}
	if o.open {
		remove, err := openBrowser(ctx, c.URL())
		defer remove()
		if err != nil {
			fmt.Fprintf(terminal, "%s: the browser was not opened, open the link yourself: %v\n", version.Program, err)
		}
	}
	return c.Run(ctx)
}

// contextName returns the kubeconfig's name of the cluster.
func (o *consoleOptions) contextName() string {
	if o.Context != "" {
		return o.Context
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	raw, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).RawConfig()
	if err != nil || raw.CurrentContext == "" {
		return "the cluster"
	}
	return raw.CurrentContext
}

// addDrills enables drills in the page: on a cluster that --drills-on names, or on temporary front doors.
func (o *consoleOptions) addDrills(cfg *console.Config) error {
	if o.drills == "" && o.Fronts == nil {
		cfg.NoDrills = "Drills break extension servers of their own. To run them from here, start the console with --drills-on " + cfg.Context + "."
		return nil
	}
	run := drillOptions{Options: o.Options, atOnce: 1}
	where := "a front door of its own, in a temporary directory: the cluster is not touched"
	if o.drills != "" {
		if o.drills != cfg.Context {
			return fmt.Errorf("--drills-on %q: the context is %q; drills run on the cluster that the page shows", o.drills, cfg.Context)
		}
		run.Options.Fronts, run.kubeconfig, run.context = nil, o.Kubeconfig, o.drills
		if _, err := run.foreignTarget(); err != nil {
			return err
		}
		where = "the cluster " + o.drills + ", in namespaces of their own"
	}
	cfg.Drills = &console.Drills{Where: where, Run: func(ctx context.Context, drills []drill.Drill, observer drill.Observer) ([]*drill.Result, error) {
		targets, closeTargets, err := run.targets(ctx, zap.NewNop())
		if err != nil {
			return nil, err
		}
		results := drill.Series(ctx, drills, targets, observer)
		return results, closeTargets()
	}}
	return nil
}

// openBrowser opens the page with the program that the system provides. Process arguments are visible to every user
// of the machine, so it passes the link in a file that only the current user can read. remove deletes the file.
func openBrowser(ctx context.Context, url string) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "portico-console-") // mode 0700
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=` + url + `"><title>Console</title><a href="` + url + `">Open the console</a>`
	if err := pki.WriteFile(file, []byte(text), 0o600); err != nil {
		return remove, err
	}
	program := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if program == nil {
		program = []string{"xdg-open"}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], file)...)
	if err := cmd.Start(); err != nil {
		return remove, err
	}
	return func() {
		_ = cmd.Wait() // it ends with ctx at the latest; a failure is visible to the user
		remove()
	}, nil
}
