package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/routes/migrate"
)

type migrateOptions struct {
	ClientFlags
	namespaces   []string
	all          bool
	to           string
	ignore       []string
	settle       time.Duration
	dryRun       bool
	deleteSource bool
	output       Output
}

func migrateCommand() *cobra.Command {
	o := migrateOptions{ClientFlags: ClientFlags{Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:   "migrate RESOURCE.VERSION.GROUP --to BACKEND (-n NAMESPACE... | --all-namespaces)",
		Short: "Move objects from an extension server to custom resources, or back",
		Long: `Move the objects of a resource from one backend of an APIRoute to another, namespace by namespace: from an extension
server to the custom resources of a CustomResourceDefinition of the same group and version, or back.

The objects of a namespace are made read-only, copied, and compared. Then a rule of the APIRoute selects the target
backend, and clients that watch list again. A failure before that step changes nothing. The objects stay at the source
backend for a rollback, until --delete-source deletes them.

A copy has a new uid and a new resource version. Namespaces with dependents of the migrated objects are refused.

The command needs all rights for the resource, the right to update the APIRoute and the verb "migrate" for it, and the
right to list all objects in the namespaces.

Exit status: 0 all namespaces were migrated, 1 at least one was not, or needs attention.`,
		Example: `  aggregator migrate widgets.v1.example.com --to custom-resources -n shop --dry-run
  aggregator migrate widgets.v1.example.com --to custom-resources --all-namespaces
  aggregator migrate widgets.v1.example.com --to server -n shop
  aggregator migrate widgets.v1.example.com --to custom-resources -n shop --delete-source`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fs := cmd.Flags()
	o.Add(fs)
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "namespaces whose objects are migrated")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "migrate the objects of all namespaces, one namespace at a time; for a cluster-scoped resource, all objects")
	fs.StringVar(&o.to, "to", "", "backend of the APIRoute that receives the objects")
	fs.StringSliceVar(&o.ignore, "ignore", nil, "fields that may differ in a copy, such as spec.mode, because the target backend sets a default for them")
	fs.DurationVar(&o.settle, "settle", 3*time.Second, "time to wait after a change of the APIRoute, until all replicas of the front door apply it")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only check whether the namespaces can be migrated")
	fs.BoolVar(&o.deleteSource, "delete-source", false, "delete the objects at the source backend after the migration, including objects of namespaces that were migrated earlier")
	o.output.Add(fs)
	return cmd
}

func (o *migrateOptions) check() error {
	switch {
	case o.to == "":
		return errors.New("--to: name the backend of the APIRoute that is to store the objects")
	case o.all == (len(o.namespaces) > 0):
		return errors.New("name namespaces with -n, or say --all-namespaces")
	}
	return o.output.Check()
}

func (o *migrateOptions) run(cmd *cobra.Command, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	resource, _ := schema.ParseResourceArg(name)
	if resource == nil {
		return fmt.Errorf("%q is not of the form RESOURCE.VERSION.GROUP, such as widgets.v1.example.com", name)
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	m, err := migrate.New(ctx, migrate.Config{
		Client: config, Resource: *resource, To: o.to, Ignore: o.ignore, Settle: o.settle, DryRun: o.dryRun, DeleteSource: o.deleteSource,
		Progress: migrateProgress(cmd.ErrOrStderr()),
	})
	if err != nil {
		return err
	}
	namespaces := o.namespaces
	if o.all {
		if namespaces, err = m.Namespaces(ctx); err != nil {
			return err
		}
	} else if !m.Namespaced() {
		return fmt.Errorf("%s are in no namespace: say --all-namespaces", resource.Resource)
	}
	reports, failed := []*migrate.Report{}, false
	for _, namespace := range namespaces {
		report, err := m.Move(ctx, namespace)
		if err != nil && !errors.Is(err, migrate.ErrRefused) {
			report.Problems = append(report.Problems, err.Error())
		}
		failed = failed || err != nil || len(report.Problems) > 0 && report.From != report.To
		reports = append(reports, report)
		if o.output.Is("text") {
			printMigration(cmd.OutOrStdout(), resource.Resource, report, o.dryRun)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if !o.output.Is("text") {
		if err := o.output.Print(cmd.OutOrStdout(), reports); err != nil {
			return err
		}
	}
	if failed {
		return &ExitError{Code: exitNo} // the reports contain the reasons
	}
	return nil
}

// migrateProgress prints progress to a terminal.
func migrateProgress(errOut io.Writer) func(namespace, what string) {
	f, ok := errOut.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(namespace, what string) {
		if namespace != "" {
			what = "namespace " + namespace + ": " + what
		}
		fmt.Fprintf(f, "%s ...\n", what)
	}
}

func printMigration(out io.Writer, resource string, r *migrate.Report, dryRun bool) {
	where := resource
	if r.Namespace != "" {
		where += " in namespace " + r.Namespace
	}
	switch {
	case r.From == r.To && r.From != "":
		fmt.Fprintf(out, "%s: stored at %s already", where, r.To)
	case r.Moved:
		fmt.Fprintf(out, "%s: %d moved from %s to %s, %d written", where, r.Objects, r.From, r.To, r.Copied)
	case dryRun && len(r.Problems) == 0:
		fmt.Fprintf(out, "%s: %d can move from %s to %s", where, r.Objects, r.From, r.To)
	default:
		fmt.Fprintf(out, "%s: not moved", where)
	}
	if r.Deleted > 0 {
		fmt.Fprintf(out, ", %d deleted where they were before", r.Deleted)
	}
	fmt.Fprintln(out)
	for _, p := range r.Problems {
		fmt.Fprintf(out, "  %s\n", p)
	}
}
