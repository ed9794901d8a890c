package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/pki"
	"portico.dev/internal/tools/doctor"
)

// exitUnexamined is the exit status if nothing could be examined, because of a usage error or an unreachable API
// server.
const exitUnexamined = 2

type doctorOptions struct {
	ClientFlags
	output            Output
	certFile, keyFile string
}

func doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [apiservice NAME]",
		Short: "Find the broken hop of an APIService, and how to repair it",
		Long: `Check each hop from an APIService to its extension server: Service, endpoints, DNS, TCP, TLS, identity, discovery,
OpenAPI, a review, a list, a watch. Print the result of each hop, the first that is broken, its cause, and the command
that repairs it. Without a name, check every APIService that has an extension server, and the conditions of every Cluster.

The command works with any API server, and needs only read rights. The result of a hop that cannot be checked is unknown.

Exit status: 0 nothing is broken, 1 a hop is broken, 2 nothing could be checked.`,
		Example: `  aggregator doctor
  aggregator doctor apiservice v1beta1.metrics.k8s.io -o json`,
		Args:              doctorArgs,
		ValidArgsFunction: completeDoctor,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), cmd.OutOrStdout(), args) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{exitUnexamined, err} })
	fs := cmd.Flags()
	o.Add(fs)
	o.output.Add(fs)
	fs.StringVar(&o.certFile, "proxy-client-cert-file", "", "client certificate of the front proxy, to call extension servers directly from this machine as the API server does")
	fs.StringVar(&o.keyFile, "proxy-client-key-file", "", "key of --proxy-client-cert-file")
	return cmd
}

func doctorArgs(cmd *cobra.Command, args []string) error {
	kinds := []string{"apiservice", "apiservices", "apiservices.apiregistration.k8s.io"}
	command := cmd.CommandPath()
	switch {
	case len(args) == 0 || len(args) == 2 && slices.Contains(kinds, args[0]):
		return nil
	case len(args) == 1 && slices.Contains(kinds, args[0]):
		return &ExitError{exitUnexamined, fmt.Errorf("%s without the name of one: run `%s %s NAME`, or `%s` for all", args[0], command, args[0], command)}
	case len(args) == 1:
		kind, name, both := strings.Cut(args[0], "/")
		if !both || !slices.Contains(kinds, kind) {
			name = args[0]
		}
		if isAPIServiceName(name) {
			return &ExitError{exitUnexamined, fmt.Errorf("unknown command %q: run `%s apiservice %s` to check the APIService", args[0], command, name)}
		}
	}
	return &ExitError{exitUnexamined, fmt.Errorf("expected nothing or `apiservice NAME`, got %q: run `%s` to check every APIService, or `%s apiservice VERSION.GROUP`", args, command, command)}
}

// isAPIServiceName reports whether a name consists of a version and a group, like the APIServices of all extension
// servers.
func isAPIServiceName(name string) bool {
	version, group, _ := strings.Cut(name, ".")
	return len(validation.IsDNS1035Label(version)) == 0 && len(validation.IsDNS1123Subdomain(group)) == 0
}

func (o *doctorOptions) run(ctx context.Context, out io.Writer, args []string) error {
	reports, clusters, err := o.examine(ctx, args)
	if err != nil {
		return &ExitError{exitUnexamined, err}
	}
	if err := o.print(out, reports, clusters, len(args) == 0); err != nil {
		return err
	}
	if n := doctor.Broken(reports) + doctor.BrokenClusters(clusters); n > 0 {
		return fmt.Errorf("broken: %d of %d", n, len(reports)+len(clusters))
	}
	return nil
}

func (o *doctorOptions) examine(ctx context.Context, args []string) ([]*doctor.Report, []*doctor.ClusterReport, error) {
	if err := o.output.Check(); err != nil {
		return nil, nil, err
	}
	client, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	client.Timeout = 0 // each request has its own deadline
	config := doctor.Config{Client: client, Timeout: o.Timeout}
	if o.certFile != "" || o.keyFile != "" {
		if config.FrontProxy, err = pki.LoadKeyPair(o.certFile, o.keyFile); err != nil {
			return nil, nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
		}
	}
	d, err := doctor.New(config)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	if len(args) == 0 {
		reports, err := d.ExamineAll(ctx)
		if err != nil {
			return nil, nil, err
		}
		clusters, err := d.ExamineClusters(ctx)
		return reports, clusters, err
	}
	report, err := d.Examine(ctx, args[1])
	if err != nil {
		return nil, nil, err
	}
	return []*doctor.Report{report}, nil, nil
}

// print writes all reports as JSON, or one report as text, or a summary of all reports with the details of broken
// ones.
func (o *doctorOptions) print(out io.Writer, reports []*doctor.Report, clusters []*doctor.ClusterReport, all bool) error {
	if !o.output.Is("text") {
		return o.output.Write(out, func(out io.Writer) error { return doctor.WriteJSON(out, reports, clusters) })
	}
	if all {
		write := doctor.WriteSummary
		if o.output.Wide() {
			write = doctor.WriteWideSummary
		}
		if err := write(out, reports); err != nil {
			return err
		}
	}
	for _, r := range reports {
		if all && r.Broken == nil {
			continue
		}
		if all {
			fmt.Fprintln(out)
		}
		if err := r.WriteText(out); err != nil {
			return err
		}
	}
	return doctor.WriteClusters(out, clusters)
}
