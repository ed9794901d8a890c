package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"portico.dev/internal/gateway/adopter"
	"portico.dev/internal/gateway/adoption"
)

// adoptOptions are the options of adopt and release.
type adoptOptions struct {
	ClientFlags
	gateway string
	wait    time.Duration
	all     bool
	dryRun  bool
	output  Output
}

// adoptResult is the result for one APIService.
type adoptResult struct {
	APIService string `json:"apiService"`
	// Result is adopted, released, unchanged, refused or dry-run.
	Result string `json:"result"`
	// Reason is the reason if it was refused.
	Reason string `json:"reason,omitempty"`
	// Recipe contains the equivalent kubectl commands, with --dry-run.
	Recipe *adoption.Recipe `json:"recipe,omitempty"`
}

func adoptCommand() *cobra.Command {
	o := adoptOptions{}
	cmd := &cobra.Command{
		Use:   "adopt APISERVICE... | --all",
		Short: "Put APIServices behind a gateway",
		Long: `Make an API server send the requests for APIServices to a gateway, which forwards them to the original servers.
Annotations of the APIService record the original server.

Before an APIService is changed, the gateway must reach its server, the server must accept the gateway's front-proxy
certificate, and both must list the same resources. Otherwise the APIService is left unchanged, and the reason is printed.

The API server's condition Available and its metric aggregator_unavailable_apiservice then describe the gateway, so that
alerts on them do not fire when an extension server is down. The gateway exports the same metrics of the servers.

Exit status: 0 all were adopted, 1 at least one was refused.`,
		Example: `  aggregator adopt v1beta1.metrics.k8s.io
  aggregator adopt --all --dry-run`,
		Args:              o.args,
		ValidArgsFunction: completeAPIServices,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args, (*adopter.Adopter).Candidates, o.adopt)
		},
	}
	o.add(cmd)
	cmd.Flags().DurationVar(&o.wait, "wait", adopter.DefaultPatience, "maximum time per APIService until the gateway reaches its server and the server accepts the gateway's certificate")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing; print the kubectl commands that adopt and release")
	return cmd
}

func releaseCommand() *cobra.Command {
	o := adoptOptions{}
	cmd := &cobra.Command{
		Use:   "release APISERVICE... | --all",
		Short: "Restore the original servers of adopted APIServices",
		Long: `Restore the Service and caBundle that APIServices had before "aggregator adopt", from annotations of the APIService. The
gateway need not run. With the last APIService, the gateway's authority is removed from the authorities that extension
servers trust.`,
		Example: `  aggregator release v1beta1.metrics.k8s.io
  aggregator release --all`,
		Args:              o.args,
		ValidArgsFunction: completeAPIServices,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args, (*adopter.Adopter).Adopted, o.release)
		},
	}
	o.add(cmd)
	return cmd
}

func (o *adoptOptions) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.ClientFlags.Add(fs)
	fs.StringVar(&o.gateway, "gateway", "portico-gateway/portico-gateway", "Service of the gateway, as namespace/name or namespace/name:port")
	fs.BoolVar(&o.all, "all", false, "all eligible APIServices")
	o.output.Add(fs)
}

func (o *adoptOptions) args(_ *cobra.Command, args []string) error {
	switch {
	case o.all && len(args) > 0:
		return errors.New("name APIServices, or say --all")
	case !o.all && len(args) == 0:
		return errors.New("name an APIService, such as v1beta1.metrics.k8s.io, or say --all")
	}
	return o.output.Check()
}

// run calls do for each APIService, in order, and prints the results.
func (o *adoptOptions) run(cmd *cobra.Command, names []string, all func(*adopter.Adopter, context.Context) ([]string, error), do func(context.Context, *adopter.Adopter, string) adoptResult) error {
	at, err := adoption.ParseService(o.gateway)
	if err != nil {
		return fmt.Errorf("--gateway: %w", err)
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	a, err := adopter.New(config, at, o.wait)
	if err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if o.all {
		if names, err = all(a, ctx); err != nil {
			return err
		}
	}
	results, refused := []adoptResult{}, 0
	for _, name := range names {
		r := do(ctx, a, name)
		if r.Result == "refused" {
			refused++
		}
		results = append(results, r)
		if o.output.Is("text") {
			r.print(out)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if !o.output.Is("text") {
		if err := o.output.Print(out, results); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(results, func(r adoptResult) bool { return r.Result == "adopted" || r.Result == "dry-run" }) {
		fmt.Fprint(cmd.ErrOrStderr(), alertsNote)
	}
	if refused > 0 {
		return fmt.Errorf("refused: %d of %d", refused, len(names))
	}
	return nil
}

// alertsNote is printed with adopted APIServices. It is not part of the results, which scripts read.
const alertsNote = `note: the API server's condition Available and its metric aggregator_unavailable_apiservice now describe the gateway. Alerts on
them, such as KubeAggregatedAPIDown, do not fire when an extension server is down. The gateway has the same metrics: scrape it,
and load the rules that ` + "`kubectl portico alerts`" + ` prints (docs/gateway.md#alerts-on-the-api-servers-metrics).
`

func (o *adoptOptions) adopt(ctx context.Context, a *adopter.Adopter, name string) adoptResult {
	if o.dryRun {
		recipe, err := a.Recipe(ctx, name)
		if err != nil {
			return result(name, "", false, err)
		}
		return adoptResult{APIService: name, Result: "dry-run", Recipe: &recipe}
	}
	changed, err := a.Adopt(ctx, name)
	return result(name, "adopted", changed, err)
}

func (o *adoptOptions) release(ctx context.Context, a *adopter.Adopter, name string) adoptResult {
	changed, err := a.Release(ctx, name)
	return result(name, "released", changed, err)
}

func result(name, done string, changed bool, err error) adoptResult {
	switch {
	case err != nil:
		return adoptResult{APIService: name, Result: "refused", Reason: err.Error()}
	case !changed:
		return adoptResult{APIService: name, Result: "unchanged"}
	}
	return adoptResult{APIService: name, Result: done}
}

func (r adoptResult) print(out io.Writer) {
	switch {
	case r.Recipe != nil:
		fmt.Fprintf(out, "# adopt %s\n", r.APIService)
		for _, line := range r.Recipe.Adopt {
			fmt.Fprintln(out, line)
		}
		fmt.Fprintf(out, "# release %s\n", r.APIService)
		for _, line := range r.Recipe.Release {
			fmt.Fprintln(out, line)
		}
	case r.Reason != "":
		fmt.Fprintf(out, "apiservice/%s %s: %s\n", r.APIService, r.Result, r.Reason)
	default:
		fmt.Fprintf(out, "apiservice/%s %s\n", r.APIService, r.Result)
	}
}
