package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
	"portico.dev/internal/replicas/cluster"
	"portico.dev/internal/store"
	"portico.dev/internal/tools/cli"
)

// clusterFlags are the flags for connecting to a front door and the members of its etcd.
type clusterFlags struct {
	cli.ClientFlags
	output cli.Output
}

func (o *clusterFlags) check() error {
	if o.Timeout <= 0 {
		return errors.New("--timeout: a time is needed")
	}
	return o.output.Check()
}

// send sends an administrative request, and decodes the response unless answer is nil.
func send(ctx context.Context, r *rest.Request, answer any) error {
	result := r.MaxRetries(0).Do(ctx)
	err := result.Error() // decodes the Status in the response, unlike Raw
	if apierrors.IsNotFound(err) && !isAnswer(err) {
		return errors.New("this API server is not a member of a cluster: start a front door with --cluster-init, and send the request to that one")
	}
	if err != nil || answer == nil {
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// isAnswer reports whether a 404 concerns the requested object and not the path.
func isAnswer(err error) bool {
	status := err.Error()
	return strings.Contains(status, store.ErrNoMember.Error()) || strings.Contains(status, cluster.ErrNoToken.Error())
}

// members is implemented by a front door's client and by etcd.
type members interface {
	Members(ctx context.Context) ([]store.Member, error)
	RemoveMember(ctx context.Context, which string) error
	PromoteMember(ctx context.Context, which string) error
}

type memberOptions struct {
	clusterFlags
	dataDir string
}

func memberCommand() *cobra.Command {
	o := memberOptions{clusterFlags: clusterFlags{ClientFlags: cli.ClientFlags{Timeout: 20 * time.Second}}}
	cmd := &cobra.Command{
		Use:   "member",
		Short: "List, remove and promote the members of an embedded etcd cluster",
		Long: `List, remove and promote the members of the embedded etcd cluster of several front doors (aggregator serve
--cluster-init and --join).

The request goes to a running front door. The caller needs the group system:masters, or the verbs get, delete and post on the
non-resource paths /cluster/members and /cluster/members/*. With --data-dir, on the machine of a member, it goes to the members of
etcd directly, even if that front door does not run or no front door responds.`,
		Args: cobra.NoArgs,
	}
	o.Add(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&o.dataDir, "data-dir", "", "data directory of a member; send the request to the members of etcd instead of a front door")
	list := &cobra.Command{
		Use:   "list",
		Short: "List the members of etcd and their state",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.list(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.output.Add(list.Flags())
	remove := &cobra.Command{
		Use:   "remove ID|NAME",
		Short: "Remove a member from etcd; its front door exits and cannot rejoin with its data",
		Long: `Remove a member from etcd, because its machine is lost or no longer needed. If its front door runs, it exits. To join
again, it needs an empty directory etcd in its data directory, and a token.

etcd refuses a removal that would leave the remaining members without a quorum, and one within five seconds of another change.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.change(cmd.Context(), cmd.OutOrStdout(), args[0], "removed", members.RemoveMember)
		},
	}
	o.output.Add(remove.Flags())
	promote := &cobra.Command{
		Use:   "promote ID|NAME",
		Short: "Promote a learner that has caught up to a voting member; joining members are promoted automatically",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.change(cmd.Context(), cmd.OutOrStdout(), args[0], "promoted", members.PromoteMember)
		},
	}
	o.output.Add(promote.Flags())
	cmd.AddCommand(list, remove, promote)
	return cmd
}

// open returns the members and a function that closes them.
func (o *memberOptions) open() (members, func(), error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if o.dataDir == "" {
		client, err := o.RESTClient()
		if err != nil {
			return nil, nil, err
		}
		return frontDoorMembers{client}, func() {}, nil
	}
	logs := logging.Default()
	logs.Level = "error"
	log, err := logs.New()
	if err != nil {
		return nil, nil, err
	}
	remote, err := aggregator.MembersIn(o.dataDir, log)
	if err != nil {
		return nil, nil, err
	}
	return remote, remote.Close, nil
}

// frontDoorMembers manages members through a front door.
type frontDoorMembers struct{ client rest.Interface }

func (m frontDoorMembers) Members(ctx context.Context) ([]store.Member, error) {
	var list cluster.MemberList
	err := send(ctx, m.client.Get().AbsPath(cluster.MembersPath), &list)
	return list.Members, err
}

func (m frontDoorMembers) RemoveMember(ctx context.Context, which string) error {
	return send(ctx, m.client.Delete().AbsPath(cluster.MembersPath, url.PathEscape(which)), nil)
}

func (m frontDoorMembers) PromoteMember(ctx context.Context, which string) error {
	return send(ctx, m.client.Post().AbsPath(cluster.MembersPath, url.PathEscape(which), "promote"), nil)
}

func (o *memberOptions) list(ctx context.Context, out io.Writer) error {
	from, end, err := o.open()
	if err != nil {
		return err
	}
	defer end()
	bounded, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	all, err := from.Members(bounded)
	if err != nil {
		return fmt.Errorf("list the members of etcd: %w", err)
	}
	if !o.output.Is("text") {
		return o.output.Print(out, cluster.MemberList{Members: all})
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tADDRESS\tROLE\tHEALTHY\tVERSION\tINDEX\tERROR")
	for _, m := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%t\t%s\t%s\t%s\n", m.ID, orDash(m.Name), m.Address, m.Role(), m.Healthy, orDash(m.Version), orDash(index(m.Index)), m.Error)
	}
	return w.Flush()
}

func orDash(text string) string { return either(text == "", "-", text) }

func index(i uint64) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprint(i)
}

func (o *memberOptions) change(ctx context.Context, out io.Writer, which, done string, change func(members, context.Context, string) error) error {
	from, end, err := o.open()
	if err != nil {
		return err
	}
	defer end()
	bounded, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := change(from, bounded, which); err != nil {
		return fmt.Errorf("member %s was not %s: %w", which, done, err)
	}
	if !o.output.Is("text") {
		return o.output.Print(out, map[string]string{"member": which, "change": done})
	}
	_, err = fmt.Fprintf(out, "member %s %s\n", which, done)
	return err
}
