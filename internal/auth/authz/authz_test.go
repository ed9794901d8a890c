package authz

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	allow = authorizer.DecisionAllow
	deny  = authorizer.DecisionDeny
	none  = authorizer.DecisionNoOpinion
)

func TestAuthorizersDecideInConfiguredOrder(t *testing.T) {
	allowing, denying, silent := serve(t, allows), serve(t, denies), serve(t, isSilent)
	at := func(s *server) string { return kubeconfigOf(t, s.URL, s.RootPEM) }
	for name, c := range map[string]struct {
		config Config
		who    user.Info
		want   authorizer.Decision
		reason string
	}{
		"nothing configured is RBAC":                    {Config{}, reader, allow, `RBAC: allowed by ClusterRoleBinding "readers"`},
		"RBAC has no opinion":                           {Config{}, alice, none, ""},
		"system:masters, whatever is configured":        {Config{Modes: []string{ModeAlwaysDeny}}, master, allow, ""},
		"AlwaysAllow":                                   {Config{Modes: []string{ModeAlwaysAllow}}, alice, allow, ""},
		"AlwaysDeny":                                    {Config{Modes: []string{ModeAlwaysDeny}}, reader, none, "forbidden"},
		"AlwaysDeny has no opinion for the next":        {Config{Modes: []string{ModeAlwaysDeny, ModeRBAC}}, reader, allow, "RBAC"},
		"a webhook after RBAC":                          {Config{Modes: []string{ModeRBAC, ModeWebhook}, WebhookConfigFile: at(allowing)}, alice, allow, "of the webhook"},
		"a webhook that denies what RBAC would allow":   {Config{Modes: []string{ModeWebhook, ModeRBAC}, WebhookConfigFile: at(denying)}, reader, deny, "never"},
		"a webhook that denies what RBAC has allowed":   {Config{Modes: []string{ModeRBAC, ModeWebhook}, WebhookConfigFile: at(denying)}, reader, allow, "RBAC"},
		"a webhook without an opinion, then RBAC":       {Config{Modes: []string{ModeWebhook, ModeRBAC}, WebhookConfigFile: at(silent)}, reader, allow, "RBAC"},
		"a webhook that may not be asked about masters": {Config{Modes: []string{ModeWebhook}, WebhookConfigFile: at(denying)}, master, allow, ""},
		"a node that asks for what is not its own":      {Config{Modes: []string{ModeNode}}, node, none, "no relationship found between node 'n1' and this object"},
		"who is no node, by the Node authorizer":        {Config{Modes: []string{ModeNode}}, alice, none, ""},
		"RBAC after the Node authorizer":                {Config{Modes: []string{ModeNode, ModeRBAC}}, reader, allow, "RBAC"},
		"a file": {Config{File: configFile(t, webhookEntry("first", at(silent), "30s", "Deny"), rbacEntry, webhookEntry("last", at(allowing), "30s", "Deny"))},
			alice, allow, "of the webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason, err := open(t, c.config).Authorize(t.Context(), getPod(c.who))
			if err != nil || got != c.want || !strings.Contains(reason, c.reason) || (c.reason == "") != (reason == "") {
				t.Fatalf("Authorize() = %v, %q, %v, want %v, %q", got, reason, err, c.want, c.reason)
			}
		})
	}
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	s := serve(t, allows)
	good := kubeconfigOf(t, s.URL, s.RootPEM)
	plain := kubeconfigOf(t, strings.Replace(s.URL, "https", "http", 1), s.RootPEM)
	program := write(t, "exec.kubeconfig", `{"kind":"Config","apiVersion":"v1","current-context":"c","contexts":[{"name":"c","context":{"cluster":"w","user":"u"}}],
"clusters":[{"name":"w","cluster":{"server":"https://127.0.0.1:1"}}],
"users":[{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"true","interactiveMode":"Never"}}}]}`)
	file := func(authorizers ...string) Config { return Config{File: configFile(t, authorizers...)} }
	for name, c := range map[string]struct {
		config Config
		says   string
	}{
		"ABAC":                               {Config{Modes: []string{"ABAC"}}, "write the policy as RBAC roles"},
		"a mode that nobody knows":           {Config{Modes: []string{"rbac"}}, `"rbac" is not an authorizer; there are AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook`},
		"a mode twice":                       {Config{Modes: []string{"RBAC", "RBAC"}}, "stands twice"},
		"a webhook without its kubeconfig":   {Config{Modes: []string{"Webhook"}}, "needs --authorization-webhook-config-file"},
		"a kubeconfig without the webhook":   {Config{WebhookConfigFile: good}, "only of use together with --authorization-mode"},
		"a version that nobody knows":        {Config{WebhookVersion: "v2"}, "--authorization-webhook-version"},
		"a kubeconfig that is not there":     {Config{Modes: []string{"Webhook"}, WebhookConfigFile: "/nowhere"}, "/nowhere"},
		"a webhook that proves nothing":      {Config{Modes: []string{"Webhook"}, WebhookConfigFile: plain}, "use https://"},
		"a program that gives credentials":   {Config{Modes: []string{"Webhook"}, WebhookConfigFile: program}, "use a certificate, token or tokenFile"},
		"a file and flags":                   {Config{File: configFile(t, rbacEntry), Modes: []string{"RBAC"}}, "use one or the other"},
		"a file that is not there":           {Config{File: "/nowhere"}, "/nowhere"},
		"an empty file":                      {Config{File: write(t, "empty", "")}, "is empty"},
		"a file of another kind":             {Config{File: write(t, "kind", "apiVersion: v1\nkind: Pod")}, "no kind"},
		"a file with a field too many":       {file("- {type: RBAC, name: rbac, colour: red}"), "colour"},
		"a file without authorizers":         {Config{File: write(t, "none", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []")}, "at least one"},
		"ABAC in a file":                     {file("- {type: ABAC, name: abac}"), "authorizers[0].type: ABAC is not among"},
		"Node twice in a file":               {file("- {type: Node, name: a}", "- {type: Node, name: b}"), "Duplicate"},
		"one name for two":                   {file(webhookEntry("a", good, "3s", "Deny"), webhookEntry("a", good, "3s", "Deny")), "Duplicate"},
		"a deadline beyond reason":           {file(webhookEntry("a", good, "31s", "Deny")), "timeout"},
		"a policy that nobody knows":         {file(webhookEntry("a", good, "3s", "Allow")), "failurePolicy"},
		"a condition that does not compile":  {file(webhookEntry("a", good, "3s", "Deny", `matchConditions: [{expression: "request.nothing == 1"}]`)), "undefined field"},
		"a condition that is not a question": {file(webhookEntry("a", good, "3s", "Deny", `matchConditions: [{expression: "request.user"}]`)), "bool"},
		"in a cluster": {file("- {type: Webhook, name: a, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}"),
			"use KubeConfigFile"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(complete(c.config))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("New() error = %v, want an error that contains %q", err, c.says)
			}
		})
	}
}

func TestInvalidConfigurationEditsAreIgnored(t *testing.T) {
	file := configFile(t, rbacEntry)
	c := complete(Config{File: file})
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	edit := func(text string) {
		t.Helper()
		if err := os.Rename(write(t, "next", text), file); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, want authorizer.Decision, stale string) {
		t.Helper()
		deadline := time.After(3 * time.Minute) // without inotify instances, the file is read every minute
		for {
			got, _, err := a.Authorize(ctx, getPod(alice))
			problem := a.Stale()
			if err == nil && got == want && (problem == nil) == (stale == "") && (problem == nil || strings.Contains(problem.Error(), stale)) {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("decision %s = %v, %v, stale %v, want %v, stale %q", what, got, err, problem, want, stale)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	await("at first", none, "")
	edit(configText("- {type: AlwaysAllow, name: open}"))
	await("after a good edit", allow, "")
	edit(configText("- {type: ABAC, name: gone}"))
	await("after a bad edit", allow, "ABAC is not among")
	edit(configText("- {type: Node, name: node}"))
	await("after an edit that nobody is prepared for", allow, "cannot be added while the server runs")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await("without the file", allow, "no such file")
	edit(configText(rbacEntry))
	await("after another good edit", none, "")
	reloads := c.Metrics.Reloads
	if good, bad := testutil.ToFloat64(reloads.WithLabelValues("success")), testutil.ToFloat64(reloads.WithLabelValues("failure")); good < 2 || bad < 2 {
		t.Errorf("counted reloads = %v good and %v bad, want at least 2 each", good, bad)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRulesForIsIncompleteWithWebhook(t *testing.T) {
	s := serve(t, allows)
	rules, _, incomplete, err := open(t, Config{}).RulesFor(t.Context(), reader, "ns")
	if len(rules) != 1 || !slices.Equal(rules[0].GetResources(), []string{"pods"}) || incomplete || err != nil {
		t.Errorf("RulesFor with RBAC = %v, incomplete %v, %v, want one rule for pods, complete", rules, incomplete, err)
	}
	both := open(t, Config{Modes: []string{ModeRBAC, ModeWebhook}, WebhookConfigFile: kubeconfigOf(t, s.URL, s.RootPEM)})
	rules, _, incomplete, err = both.RulesFor(t.Context(), reader, "ns")
	if len(rules) != 1 || !incomplete || err == nil {
		t.Errorf("RulesFor with a webhook = %v, incomplete %v, %v, want one rule, incomplete, and an error", rules, incomplete, err)
	}
}

func TestRBACDecisionDoesNotAllocate(t *testing.T) {
	a := open(t, Config{})
	for name, who := range map[string]user.Info{"allowed": reader, "refused": alice, "system:masters": master} {
		var question authorizer.Attributes = getPod(who)
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() { _, _, _ = a.Authorize(ctx, question) }); n != 0 {
			t.Errorf("%s: allocations of a decision = %v, want 0", name, n)
		}
	}
}
