package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/drill"
	"portico.dev/internal/tools/drill/faulty"
	"portico.dev/internal/tools/drill/report"
	"portico.dev/internal/version"
)

// exitDrillUsage is the exit status of a usage error.
const exitDrillUsage = 2

// maxAtOnce bounds the number of temporary front doors, which use 100 MiB each.
const maxAtOnce = 16

func drillCommand(with Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Rehearse failures of extension servers and report what clients see",
	}
	cmd.AddCommand(drillListCommand(), drillRunCommand(with), drillBackendCommand())
	return cmd
}

func drillListCommand() *cobra.Command {
	var expected bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the drills",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "DRILL\tABOUT\tWHAT HAPPENS")
			for _, d := range drill.All() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, d.About, d.Title)
				if !expected {
					continue
				}
				for _, e := range drill.Expected(d) {
					fmt.Fprintf(w, "\t\t  - %s\n", e.Text)
				}
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&expected, "expected", false, "also show the expectations of each drill")
	return cmd
}

// drillBackendCommand returns the hidden command that drills start as the extension server when they need a separate
// process.
func drillBackendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backend", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return faulty.ServeProcess(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), os.NewFile(3, "listener"))
		},
	}
}

type drillOptions struct {
	all                 bool
	kubeconfig, context string
	iKnow               string
	advertise, bind     string
	replicas            []string
	gateway             string
	apiRoute            bool
	cluster             string
	atOnce              int
	output              Output
	html                string
	Options
	logs logging.Options
}

func drillRunCommand(with Options) *cobra.Command {
	o := drillOptions{Options: with, logs: logging.Default()}
	o.logs.Level = "fatal" // a front door logs many errors during a drill
	cmd := &cobra.Command{
		Use:   "run NAME... | --all",
		Short: "Run drills",
		Long: `Run drills: each creates a namespace, two extension servers and their APIServices, breaks one of
the servers while clients use both, repairs it, reports what the clients of each saw, and
cleans up, also on Ctrl-C.

` + where(with.Fronts) + `

Exit status: 0 all passed or were skipped, 1 some failed, 2 none was run.`,
		Example:           "  aggregator drill run refuse hang --context kind-test --advertise-address 172.18.0.1\n  aggregator drill run --all --context kind-test --advertise-address 172.18.0.1 -o junit",
		ValidArgsFunction: completeDrills,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{exitDrillUsage, err} })
	fs := cmd.Flags()
	fs.BoolVar(&o.all, "all", false, "run every drill")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the API server to run the drills against")
	fs.StringVar(&o.context, "context", "", "context of the kubeconfig; default its current one")
	fs.StringVar(&o.iKnow, "i-know-this-is", "", "name of the context, to confirm that drills may run although the context, cluster, user or server looks like production")
	fs.StringVar(&o.advertise, "advertise-address", "", "host or IP address by which the API server reaches this process; default localhost")
	fs.StringVar(&o.bind, "bind-address", "", "address that the extension servers of the drills listen on; default 127.0.0.1, or all addresses with --advertise-address")
	fs.StringSliceVar(&o.replicas, "replica", nil, "address of another server of the same cluster, called with the CA certificates and credentials of the kubeconfig; may be repeated")
	fs.StringVar(&o.gateway, "gateway", "", "Service of a gateway, as namespace/name:port, to put the servers of the drills behind; the gateway must be allowed to write their APIServices")
	fs.BoolVar(&o.apiRoute, "apiroute", false, "make the failing server the first of two backends of an APIRoute, and expect no effect on clients of the second backend")
	fs.StringVar(&o.cluster, "cluster", "", "Cluster of the front door for the drills of API servers, which relay to its API servers and do not disturb it")
	o.output.Add(fs, "junit")
	fs.StringVar(&o.html, "html", "", "write a report with timelines to this file")
	if o.atOnce = 1; with.Fronts != nil {
		cmd.Example = "  aggregator drill run refuse hang\n  aggregator drill run --all --parallel 4 --html drills.html\n" + cmd.Example
		fs.IntVar(&o.atOnce, "parallel", 1, "number of drills to run in parallel, each on its own front door")
		with.Fronts.AddFlags(fs)
		o.logs.AddFlags(fs)
	}
	return cmd
}

// where describes the target of drills.
func where(fronts Fronts) string {
	any := "any API server that can reach this process; one that looks like\nproduction is refused."
	if fronts == nil {
		return "It runs against " + any
	}
	return "Without --kubeconfig and --context it runs against a front door of its own in a temporary\ndirectory. With either it runs against " + any
}

func (o *drillOptions) run(ctx context.Context, names []string, out, terminal io.Writer) error {
	drills, err := o.choose(names)
	if err != nil {
		return &ExitError{exitDrillUsage, err}
	}
	log, err := o.logs.New()
	if err != nil {
		return &ExitError{exitDrillUsage, err}
	}
	targets, closeTargets, err := o.targets(ctx, log)
	if err != nil {
		return &ExitError{exitDrillUsage, err}
	}
	results := drill.Series(ctx, drills, targets, observer(terminal))
	if err := errors.Join(o.report(results, out), closeTargets()); err != nil {
		return err
	}
	if len(results) < len(drills) || ctx.Err() != nil {
		return &ExitError{1, fmt.Errorf("interrupted after %d of %d drills", len(results), len(drills))}
	}
	return judgement(results)
}

// choose returns the drills that the command line selects.
func (o *drillOptions) choose(names []string) ([]drill.Drill, error) {
	if err := o.output.Check(); err != nil {
		return nil, err
	}
	switch {
	case o.atOnce < 1 || o.atOnce > maxAtOnce:
		return nil, fmt.Errorf("--parallel: %d is not a number from 1 to %d", o.atOnce, maxAtOnce)
	case o.all == (len(names) > 0):
		return nil, fmt.Errorf("name some drills, or say --all; `%s drill list` shows them", version.Program)
	case o.all:
		return drill.All(), nil
	}
	return drill.Find(names...)
}

// write prints the results.
func (o *drillOptions) write(out io.Writer, results []*drill.Result) error {
	switch {
	case o.output.Is("text"):
		return report.Text(out, results)
	case o.output.Is("junit"):
		return report.JUnit(out, results)
	}
	return o.output.Write(out, func(out io.Writer) error { return report.JSON(out, results) })
}

func (o *drillOptions) report(results []*drill.Result, out io.Writer) error {
	if err := o.write(out, results); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if o.html == "" {
		return nil
	}
	if err := pki.WriteFile(o.html, report.HTML(results), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func judgement(results []*drill.Result) error {
	bad := 0
	for _, r := range results {
		if r.Verdict == drill.Failed || r.Verdict == drill.Broken {
			bad++
		}
	}
	if bad > 0 {
		return &ExitError{1, fmt.Errorf("%d of %d drills did not pass", bad, len(results))}
	}
	return nil
}

// observer shows progress on a terminal, and nothing in a pipe or a file.
func observer(terminal io.Writer) drill.Observer {
	if f, ok := terminal.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return report.Progress{Terminal: f}
		}
	}
	return report.Silence{}
}
