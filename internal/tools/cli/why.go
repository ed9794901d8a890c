package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"portico.dev/internal/auth/rbac/explain"
	"portico.dev/internal/tools/toolclient"
)

type whyOptions struct {
	ClientFlags
	question explain.Query
	groups   []string
	output   Output
}

// whyAnswer is the output of -o json.
type whyAnswer struct {
	Allowed bool `json:"allowed"`
	// Reason is the reason in the server's review.
	Reason string `json:"reason,omitempty"`
	// Rules lists the rules that allow the request, or the closest ones.
	Rules []explain.Finding `json:"rules"`
	// Grant lists commands that allow a denied request.
	Grant []string `json:"grant,omitempty"`
}

func whyCommand() *cobra.Command {
	o := whyOptions{}
	cmd := &cobra.Command{
		Use:   "why USER VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] | USER VERB PATH",
		Short: "Show which RBAC rule allows a user's request, or which rules come nearest",
		Long: `Ask the server whether a user may send a request, and show which RBAC rule and binding allow it. If none does,
show the nearest rules and the permissions that they lack, and the commands that allow it. The command works with any API server, and needs the rights to
create subjectaccessreviews and to list roles and bindings.

Exit status: 0 the request is allowed, 1 it is denied, 2 the API server could not be queried.`,
		Example: `  aggregator why alice get pods -n dev
  aggregator why system:serviceaccount:dev:bot delete deployments.apps/scale web -n dev
  aggregator why alice get /metrics`,
		Args: func(cmd *cobra.Command, args []string) error { return notAsked(cobra.RangeArgs(3, 4)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			allowed, err := o.run(cmd.Context(), cmd.OutOrStdout(), args)
			if err == nil && !allowed {
				return &ExitError{Code: exitNo} // the result is already printed
			}
			return notAsked(err)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return notAsked(err) })
	fs := cmd.Flags()
	o.Add(fs)
	fs.StringVarP(&o.question.Namespace, "namespace", "n", "", "namespace of the request; default cluster scope")
	fs.StringSliceVar(&o.groups, "as-group", nil, "group of the user; may be repeated; system:authenticated is always added")
	o.output.Add(fs)
	return cmd
}

// Exit statuses, as in `kubectl auth can-i`, except for exitNotAsked.
const (
	exitNo       = 1
	exitNotAsked = 2
)

// notAsked wraps an error in an ExitError with exitNotAsked.
func notAsked(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{exitNotAsked, err}
}

// run creates the review, prints the result, and returns it.
func (o *whyOptions) run(ctx context.Context, out io.Writer, args []string) (allowed bool, err error) {
	if err := o.output.Check(); err != nil {
		return false, err
	}
	config, err := o.Config()
	if err != nil {
		return false, err
	}
	config.QPS = -1 // only four lists and a review
	client, err := toolclient.New(config)
	if err != nil {
		return false, err
	}
	if err := o.parseQuestion(ctx, client, args); err != nil {
		return false, err
	}
	answer, err := o.answer(ctx, client)
	if err != nil {
		return false, err
	}
	if !o.output.Is("text") {
		return answer.Allowed, o.output.Print(out, answer)
	}
	return answer.Allowed, o.print(out, answer)
}

// parseQuestion parses the arguments. A resource may be written as in kubectl: by short or singular name, with or without its
// group.
func (o *whyOptions) parseQuestion(ctx context.Context, client *toolclient.Client, args []string) error {
	q := &o.question
	q.User, q.Verb = args[0], args[1]
	q.Groups = append([]string{"system:authenticated"}, o.groups...)
	if namespace, _, err := serviceaccount.SplitUsername(q.User); err == nil {
		q.Groups = append(q.Groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	if strings.HasPrefix(args[2], "/") {
		if len(args) == 4 || q.Namespace != "" {
			return fmt.Errorf("a path such as %s has neither a name nor a namespace", args[2])
		}
		q.Path = args[2]
		return nil
	}
	if len(args) == 4 {
		q.Name = args[3]
	}
	resource, subresource, _ := strings.Cut(args[2], "/")
	q.Subresource = subresource
	q.Resource, q.Group, _ = strings.Cut(resource, ".")
	if q.Resource == "*" {
		return nil
	}
	all, err := client.Discover(ctx)
	if err != nil {
		return fmt.Errorf("look up resource %s: %w", resource, err)
	}
	gvr, found := toolclient.FindResource(all, q.Resource, q.Group)
	if !found {
		for _, gv := range all { // the resource may belong to a server that does not respond
			if gv.Err != nil && (q.Group == "" || q.Group == gv.Group) {
				return fmt.Errorf("this server has no resource %q; these it has: kubectl api-resources; its resources of %s are not known: %w", resource, gv, gv.Err)
			}
		}
		return fmt.Errorf("this server has no resource %q; these it has: kubectl api-resources", resource)
	}
	q.Resource, q.Group = gvr.Resource, gvr.Group
	return nil
}

func (o *whyOptions) answer(ctx context.Context, client *toolclient.Client) (a whyAnswer, err error) {
	q := o.question
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: q.User, Groups: q.Groups}}
	if q.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: q.Path, Verb: q.Verb}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: q.Namespace, Verb: q.Verb, Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Name: q.Name,
		}
	}
	review, err = client.Review(ctx, review)
	if err != nil {
		return a, fmt.Errorf("ask the server: %w", err)
	}
	policy, err := rolesAndBindings(ctx, client)
	if err != nil {
		return a, err
	}
	a.Allowed, a.Reason = review.Status.Allowed, review.Status.Reason
	explained, findings := explain.Explain(policy, q)
	if explained == a.Allowed {
		a.Rules = findings
	}
	if !explained && !a.Allowed {
		a.Grant = grantCommands(policy, q)
	}
	return a, nil
}

func rolesAndBindings(ctx context.Context, client *toolclient.Client) (p explain.Objects, err error) {
	for _, list := range []func() error{
		func() error {
			return into(ctx, &p.Roles, client.Roles("").List, func(l *rbacv1.RoleList) []rbacv1.Role { return l.Items })
		},
		func() error {
			return into(ctx, &p.RoleBindings, client.RoleBindings("").List, func(l *rbacv1.RoleBindingList) []rbacv1.RoleBinding { return l.Items })
		},
		func() error {
			return into(ctx, &p.ClusterRoles, client.ClusterRoles().List, func(l *rbacv1.ClusterRoleList) []rbacv1.ClusterRole { return l.Items })
		},
		func() error {
			return into(ctx, &p.ClusterRoleBindings, client.ClusterRoleBindings().List, func(l *rbacv1.ClusterRoleBindingList) []rbacv1.ClusterRoleBinding { return l.Items })
		},
	} {
		if err := list(); err != nil {
			return p, fmt.Errorf("read the rules: %w", err)
		}
	}
	return p, nil
}

func into[L, T any](ctx context.Context, to *[]T, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T) error {
	l, err := list(ctx, metav1.ListOptions{})
	if err == nil {
		*to = items(l)
	}
	return err
}

func (o *whyOptions) print(out io.Writer, a whyAnswer) error {
	var b strings.Builder
	word := "no"
	if a.Allowed {
		word = "yes"
	}
	fmt.Fprintf(&b, "%s: %s\n", word, o.question)
	if a.Reason != "" {
		fmt.Fprintf(&b, "  the server says: %s\n", a.Reason)
	}
	switch {
	case len(a.Rules) == 0 && a.Allowed:
		b.WriteString("  no RBAC rule says so: the server has another reason, such as the group system:masters or another authorizer\n")
	case len(a.Rules) == 0:
		b.WriteString("  no RBAC rule comes near\n")
	case !a.Allowed:
		b.WriteString("nearest rules:\n")
	}
	for _, f := range a.Rules {
		fmt.Fprintf(&b, "  %s of %s to %s: %s\n", f.Binding, f.Role, f.Subject, f.Rule)
		for _, l := range f.Lacks {
			fmt.Fprintf(&b, "      lacks %s\n", l)
		}
	}
	if len(a.Grant) > 0 {
		b.WriteString("to allow it:\n")
	}
	for _, command := range a.Grant {
		fmt.Fprintf(&b, "  %s\n", command)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
