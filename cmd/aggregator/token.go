package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/tools/cli"
)

func tokenCommand() *cobra.Command {
	o := clusterFlags{ClientFlags: cli.ClientFlags{Timeout: 10 * time.Second}}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete join tokens of a cluster of front doors",
		Long: `Create, list and delete join tokens. With a join token another machine becomes a member of the cluster (aggregator
serve --join) and receives the keys of the front door. A token is as sensitive as these keys until it expires.

The request goes to a running front door. The caller needs the group system:masters, or the verbs post, get and delete on the
non-resource paths /cluster/tokens and /cluster/tokens/*.`,
		Args: cobra.NoArgs,
	}
	o.Add(cmd.PersistentFlags())
	var ttl time.Duration
	var description string
	var printCommand bool
	create := &cobra.Command{
		Use:   "create",
		Short: "Create and print a join token",
		Example: `  umask 077; aggregator token create > join-token
  aggregator token create --ttl 1h --print-join-command`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.createToken(cmd.Context(), cmd.OutOrStdout(), ttl, description, printCommand)
		},
	}
	create.Flags().DurationVar(&ttl, "ttl", cluster.DefaultTTL, "lifetime of the token; 0 means that it does not expire")
	create.Flags().StringVar(&description, "description", "", "description of the token")
	create.Flags().BoolVar(&printCommand, "print-join-command", false, "print the command, with the token, that another front door runs to join")
	o.output.Add(create.Flags())
	list := &cobra.Command{
		Use:   "list",
		Short: "List the join tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.listTokens(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.output.Add(list.Flags())
	remove := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a join token, so that it is no longer accepted",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.deleteToken(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	cmd.AddCommand(create, list, remove)
	return cmd
}

func (o *clusterFlags) createToken(ctx context.Context, out io.Writer, ttl time.Duration, description string, printCommand bool) error {
	if err := o.check(); err != nil {
		return err
	}
	client, err := o.RESTClient()
	if err != nil {
		return err
	}
	var made cluster.NewTokenAnswer
	seconds := int64(ttl / time.Second)
	body, err := json.Marshal(cluster.TokenRequest{TTLSeconds: &seconds, Description: description})
	if err != nil {
		return err
	}
	request := client.Post().AbsPath(cluster.TokensPath).SetHeader("Content-Type", "application/json").Body(body)
	if err := send(ctx, request, &made); err != nil {
		return fmt.Errorf("make a join token: %w", err)
	}
	switch {
	case !o.output.Is("text"):
		return o.output.Print(out, made)
	case printCommand:
		_, err = fmt.Fprintf(out, "aggregator serve --join %s --join-token %s\n", made.Server, made.Token)
	default:
		_, err = fmt.Fprintln(out, made.Token)
	}
	return err
}

func (o *clusterFlags) listTokens(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	client, err := o.RESTClient()
	if err != nil {
		return err
	}
	var list cluster.TokenList
	if err := send(ctx, client.Get().AbsPath(cluster.TokensPath), &list); err != nil {
		return fmt.Errorf("list the join tokens: %w", err)
	}
	if !o.output.Is("text") {
		return o.output.Print(out, list)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tCREATED\tEXPIRES\tDESCRIPTION")
	for _, t := range list.Tokens {
		expires := "never"
		if !t.Expires.IsZero() {
			expires = t.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.ID, t.Created.Format(time.RFC3339), expires, t.Description)
	}
	return w.Flush()
}

func (o *clusterFlags) deleteToken(ctx context.Context, out io.Writer, id string) error {
	if err := o.check(); err != nil {
		return err
	}
	if token, err := cluster.ParseToken(id); err == nil {
		id = token.ID
	}
	if err := cluster.CheckTokenID(id); err != nil {
		return errors.New("not an ID of a join token; see `aggregator token list`")
	}
	client, err := o.RESTClient()
	if err != nil {
		return err
	}
	if err := send(ctx, client.Delete().AbsPath(cluster.TokensPath, id), nil); err != nil {
		return fmt.Errorf("delete join token %s: %w", id, err)
	}
	_, err = fmt.Fprintf(out, "join token %s deleted\n", id)
	return err
}
