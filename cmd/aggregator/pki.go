package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/cli"
)

type pkiOptions struct {
	dataDir string
	output  cli.Output
	dryRun  bool
}

func (o *pkiOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dataDir, "data-dir", aggregator.Default().DataDir, "data directory of the front door")
	o.output.Add(fs)
}

func (o *pkiOptions) dir() string { return filepath.Join(o.dataDir, "pki") }

func pkiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "Show and replace the certificate authorities in a data directory",
	}
	cmd.AddCommand(pkiStatusCommand(), pkiRotateCommand())
	return cmd
}

func pkiStatusCommand() *cobra.Command {
	var o pkiOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which certificate authorities sign, and which are accepted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			found, err := pki.RotationStatus(o.dir())
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), rotationReport{Directory: o.dir(), Authorities: found})
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func pkiRotateCommand() *cobra.Command {
	var o pkiOptions
	cmd := &cobra.Command{
		Use:   "rotate prepare|switch|finish [AUTHORITY]...",
		Short: "Rotate certificate authorities in three steps, without failed requests",
		Long: `Replace certificate authorities of the front door: ca (signs its server certificate), client-ca (signs clients' certificates) and
front-proxy-ca (signs its certificate for extension servers); without a name, all three.

  prepare  creates a new authority, which is accepted in addition to the old one
  switch   signs with the new authority, and reissues the front door's own certificates; the old authority is still accepted
  finish   stops accepting the old authority

Between the steps, clients and extension servers must receive the accepted authorities and new certificates: the command prints
which. A front door that runs on the directory applies each step without a restart. A repeated step changes nothing.`,
		Example: "  aggregator pki rotate prepare --dry-run\n  aggregator pki rotate switch front-proxy-ca -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("which step: %s, %s or %s? `aggregator pki status` shows which comes now", pki.Prepare, pki.Switch, pki.Finish)
			}
			return nil
		},
		ValidArgs: append([]string{string(pki.Prepare), string(pki.Switch), string(pki.Finish)}, pki.RotationAuthorities()...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			step, names := pki.Step(args[0]), args[1:]
			if len(names) == 0 {
				names = pki.RotationAuthorities()
			}
			done, err := pki.Rotate(o.dir(), step, names, o.dryRun)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), rotationReport{Directory: o.dir(), Step: step, DryRun: o.dryRun, Authorities: done, Next: nextSteps(step, names)})
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only print the changes that the step would make")
	return cmd
}

// rotationReport is the output of both commands.
type rotationReport struct {
	Directory   string         `json:"directory"`
	Step        pki.Step       `json:"step,omitempty"`
	DryRun      bool           `json:"dryRun,omitempty"`
	Authorities []pki.Rotation `json:"authorities"`
	// Next lists the actions required before the next step.
	Next []string `json:"next,omitempty"`
}

func (o *pkiOptions) print(out io.Writer, r rotationReport) error {
	if !o.output.Is("text") {
		return o.output.Print(out, r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AUTHORITY\tPHASE\tSIGNS\tUNTIL\tACCEPTED\tFILES")
	for _, a := range r.Authorities {
		var accepted, files []string
		for _, c := range a.Accepts {
			accepted = append(accepted, c.Subject)
		}
		for _, f := range a.Files {
			files = append(files, filepath.Base(f))
		}
		if len(files) == 0 {
			files = []string{"-"}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Authority, a.Phase, a.Signs.Subject, a.Signs.NotAfter.Format("2006-01-02"), strings.Join(accepted, ","), strings.Join(files, ","))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.DryRun {
		fmt.Fprintln(out, "Nothing was changed (--dry-run).")
	}
	for _, next := range r.Next {
		fmt.Fprintln(out, "Next: "+next)
	}
	return nil
}

// nextSteps returns the actions required after a rotation step of the named authorities.
func nextSteps(step pki.Step, names []string) []string {
	var next []string
	for _, name := range names {
		next = append(next, afterStep[step][name]...)
	}
	return append([]string{"copy the authorities' .crt and .key to the pki directories of the other replicas, if there are any"}, next...)
}

var afterStep = map[pki.Step]map[string][]string{
	pki.Prepare: {
		"ca":             {"distribute the certificates in ca.crt to every client, then switch; admin.kubeconfig and the ConfigMaps kube-root-ca.crt already contain them"},
		"client-ca":      {"wait until extension servers have read client-ca-file in the ConfigMap kube-system/extension-apiserver-authentication, then switch; most servers take less than a minute"},
		"front-proxy-ca": {"wait until extension servers have read requestheader-client-ca-file in the ConfigMap kube-system/extension-apiserver-authentication, then switch; most servers take less than a minute"},
	},
	pki.Switch: {
		"ca":             {"when the new server certificate is in use at all replicas, finish"},
		"client-ca":      {"reissue client certificates (aggregator kubeconfig), then finish; admin.kubeconfig is already reissued"},
		"front-proxy-ca": {"`aggregator doctor` shows whether extension servers accept the new certificate; finish when all do"},
	},
	pki.Finish: {
		"client-ca":      {"remove the old certificate from client-ca-file in the ConfigMap kube-system/extension-apiserver-authentication; front doors only add to it"},
		"front-proxy-ca": {"remove the old certificate from requestheader-client-ca-file in the ConfigMap kube-system/extension-apiserver-authentication; front doors only add to it"},
	},
}
