package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/pki"
	"portico.dev/internal/tools/conformance"
)

type conformanceOptions struct {
	ClientFlags
	output        Output
	only          []string
	write, rotate bool
	rotateTimeout time.Duration

	caFile, serverName, certFile, keyFile string
	insecure                              bool
	user                                  string
	groups, groupVersions                 []string
}

func conformanceCommand() *cobra.Command {
	var o conformanceOptions
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Check any extension server and print a scorecard",
		Long: `Check whether an extension server behaves as clients and front doors expect: discovery, OpenAPI, Table, metadata,
selectors, paging, watch, initial events, errors, and authentication.

Without --write and --rotate the command changes nothing.

Exit status: 0 no check failed, 1 a check failed, 2 the server could not be checked.`,
		Args: func(_ *cobra.Command, args []string) error {
			return &ExitError{exitUnexamined, fmt.Errorf("expected `apiservice NAME` or `url URL`, got %q", args)}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.common(cmd.PersistentFlags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{exitUnexamined, err} })
	cmd.AddCommand(o.apiService(), o.url())
	return cmd
}

func (o *conformanceOptions) common(fs *pflag.FlagSet) {
	o.Add(fs)
	o.output.Add(fs, "junit")
	fs.StringSliceVar(&o.only, "only", nil, "topic or TOPIC/CHECK to run; may be repeated; default all")
	fs.BoolVar(&o.write, "write", false, "create and delete an object in namespace default, if the server supports it")
	fs.BoolVar(&o.rotate, "rotate", false, "add a front-proxy CA certificate to kube-system/extension-apiserver-authentication, check that the server accepts it, and remove it")
	fs.DurationVar(&o.rotateTimeout, "rotate-timeout", 2*time.Minute, "how long the server may take to accept the CA certificate of --rotate")
}

func (o *conformanceOptions) apiService() *cobra.Command {
	return &cobra.Command{
		Use:               "apiservice NAME",
		Short:             "Check the extension server of an APIService through the API server",
		Example:           "  aggregator conformance apiservice v1beta1.metrics.k8s.io -o junit",
		Args:              oneArgument("the name of an APIService"),
		ValidArgsFunction: completeAPIService,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), func(c *conformance.Config) (err error) {
				c.APIService = args[0]
				c.Client, err = o.Config()
				return err
			})
		},
	}
}

func (o *conformanceOptions) url() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "url https://HOST:PORT",
		Short:             "Check an extension server directly, as a front proxy",
		Example:           "  aggregator conformance url https://127.0.0.1:8443 --ca-file ca.crt --client-certificate front-proxy-client.crt --client-key front-proxy-client.key",
		Args:              oneArgument("a URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), func(c *conformance.Config) error { return o.server(c, args[0]) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.caFile, "ca-file", "", "CA certificates of the server; default the system's")
	fs.StringVar(&o.serverName, "server-name", "", "name in the server's certificate; default the host of the URL")
	fs.BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "do not verify the server's certificate")
	fs.StringVar(&o.certFile, "client-certificate", "", "client certificate of a front proxy that the server trusts")
	fs.StringVar(&o.keyFile, "client-key", "", "key of --client-certificate")
	fs.StringVar(&o.user, "as", "system:admin", "user name in the front proxy's headers")
	fs.StringSliceVar(&o.groups, "as-group", []string{"system:masters"}, "group in the front proxy's headers; may be repeated")
	fs.StringSliceVar(&o.groupVersions, "group-version", nil, "GROUP/VERSION to check; may be repeated; default all that the server lists")
	return cmd
}

func oneArgument(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return &ExitError{exitUnexamined, fmt.Errorf("expected %s, got %q", what, args)}
	}
}

// server reads the flags that describe the server at url.
func (o *conformanceOptions) server(c *conformance.Config, url string) (err error) {
	c.Server = &conformance.Server{URL: url, ServerName: o.serverName, Insecure: o.insecure, User: o.user, Groups: o.groups}
	if o.caFile != "" {
		if c.Server.Roots, err = os.ReadFile(o.caFile); err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
	}
	if o.certFile != "" || o.keyFile != "" {
		if c.Server.FrontProxy, err = pki.LoadKeyPair(o.certFile, o.keyFile); err != nil {
			return fmt.Errorf("--client-certificate: %w", err)
		}
	}
	for _, text := range o.groupVersions {
		gv, err := schema.ParseGroupVersion(text)
		if err != nil || gv.Group == "" {
			return fmt.Errorf("--group-version: %q is not GROUP/VERSION", text)
		}
		c.GroupVersions = append(c.GroupVersions, gv)
	}
	if o.rotate {
		c.Client, err = o.Config()
	}
	return err
}

func (o *conformanceOptions) run(ctx context.Context, out io.Writer, target func(*conformance.Config) error) error {
	cards, err := o.examine(ctx, target)
	if err != nil {
		return &ExitError{exitUnexamined, err}
	}
	switch {
	case o.output.Is("text"):
		err = conformance.WriteText(out, cards)
	case o.output.Is("junit"):
		err = conformance.WriteJUnit(out, cards)
	default:
		err = o.output.Write(out, func(out io.Writer) error { return conformance.WriteJSON(out, cards) })
	}
	if err != nil {
		return err
	}
	if n := conformance.Failed(cards); n > 0 {
		return fmt.Errorf("checks failed: %d", n)
	}
	return nil
}

func (o *conformanceOptions) examine(ctx context.Context, target func(*conformance.Config) error) ([]*conformance.Report, error) {
	if err := o.output.Check(); err != nil {
		return nil, err
	}
	c := conformance.Config{Only: o.only, Timeout: o.Timeout, Write: o.write, Rotate: o.rotate, RotateTimeout: o.rotateTimeout}
	if err := target(&c); err != nil {
		return nil, err
	}
	e, err := conformance.New(c)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Run(ctx)
}
