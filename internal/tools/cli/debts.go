package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/version"
)

const debtsPath = "/debug/debts"

type debtsOptions struct {
	ClientFlags
	output Output
}

func debtsCommand() *cobra.Command {
	var o debtsOptions
	cmd := &cobra.Command{
		Use:   "debts",
		Short: "List the objects that finalized namespaces may have left at unavailable backends",
		Long: `List the cleanup debts: namespaces that were finalized without a dead extension server, because the annotation
portico.dev/finalize-namespaces-after allows it or because the server's Service was in the namespace itself. A debt ends when
the server is available again and the remaining objects are deleted. Until then the group-version is unavailable.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.list(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.Add(cmd.PersistentFlags())
	o.output.Add(cmd.Flags())
	cmd.AddCommand(&cobra.Command{
		Use:   "forget ID",
		Short: "Remove a debt without cleanup; the remaining objects stay at the backend",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.forget(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	})
	return cmd
}

func (o *debtsOptions) list(ctx context.Context, out io.Writer) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	client, err := o.RESTClient()
	if err != nil {
		return err
	}
	answer := client.Get().AbsPath(debtsPath).Do(ctx)
	// Error decodes the Status in the response, Raw does not.
	if err := answer.Error(); apierrors.IsNotFound(err) {
		return errors.New("this API server has no list of debts: it is not a Portico front door")
	} else if err != nil {
		return fmt.Errorf("list debts: %w", err)
	}
	body, err := answer.Raw()
	if err != nil {
		return fmt.Errorf("list debts: %w", err)
	}
	var list debts.List
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("read the list of debts: %w", err)
	}
	if !o.output.Is("text") {
		return o.output.Write(out, func(out io.Writer) error {
			_, err := fmt.Fprintln(out, strings.TrimSpace(string(body)))
			return err
		})
	}
	return printDebts(out, list.Debts)
}

func printDebts(out io.Writer, entries []debts.Entry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(out, "no debts")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAMESPACE\tUID\tGROUPVERSION\tAPISERVICE\tSINCE\tSTATE")
	for _, e := range entries {
		state := string(e.State)
		if e.Message != "" {
			state += " (" + e.Message + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			e.ID, e.Namespace, e.NamespaceUID, e.GroupVersion, e.APIService, e.Since.Format(time.RFC3339), state)
	}
	return w.Flush()
}

func (o *debtsOptions) forget(ctx context.Context, out io.Writer, id string) error {
	client, err := o.RESTClient()
	if err != nil {
		return err
	}
	if strings.Contains(id, "/") {
		return fmt.Errorf("%q is not the ID of a debt; see `%s debts`", id, version.Program)
	}
	err = client.Delete().AbsPath(debtsPath, id).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no debt %s; see `%s debts`", id, version.Program)
	}
	if err != nil {
		return fmt.Errorf("forget debt %s: %w", id, err)
	}
	_, err = fmt.Fprintf(out, "debt %s forgotten\n", id)
	return err
}
