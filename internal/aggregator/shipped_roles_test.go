package aggregator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/extserver"
	"portico.dev/pkg/extension"
)

// capability is an effect beyond the purpose of a role. One of the verbs on one of the resources is enough for it.
type capability struct {
	name  string
	verbs []string
	on    []string // group/resource
}

var (
	anyWrite = []string{"create", "update", "patch", "delete", "deletecollection"}
	setting  = []string{"create", "update", "patch"}
	anyRead  = []string{"get", "list", "watch"}
)

// dangerous is the fixed list of capabilities that the test looks for in a role.
var dangerous = []capability{
	{"read Secrets", anyRead, []string{"/secrets"}},
	{"write Secrets", anyWrite, []string{"/secrets"}},
	{"write ConfigMaps", anyWrite, []string{"/configmaps"}},
	{"escalate", []string{"escalate"}, []string{"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/clusterroles"}},
	{"bind roles", []string{"bind"}, []string{"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/clusterroles"}},
	{"write roles and bindings", anyWrite, []string{
		"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/clusterroles",
		"rbac.authorization.k8s.io/rolebindings", "rbac.authorization.k8s.io/clusterrolebindings",
	}},
	{"impersonate", []string{"impersonate"}, []string{
		"/users", "/groups", "/serviceaccounts", "authentication.k8s.io/userextras", "authentication.k8s.io/uids",
	}},
	{"write webhooks and policies", anyWrite, []string{
		"admissionregistration.k8s.io/mutatingwebhookconfigurations", "admissionregistration.k8s.io/validatingwebhookconfigurations",
		"admissionregistration.k8s.io/mutatingadmissionpolicies", "admissionregistration.k8s.io/validatingadmissionpolicies",
		"admissionregistration.k8s.io/mutatingadmissionpolicybindings", "admissionregistration.k8s.io/validatingadmissionpolicybindings",
	}},
	{"write APIServices", setting, []string{"apiregistration.k8s.io/apiservices"}},
	{"write APIRoutes", setting, []string{"routing.portico.dev/apiroutes"}},
	{"delete APIServices", []string{"delete", "deletecollection"}, []string{"apiregistration.k8s.io/apiservices"}},
	{"replace what is served here", []string{"replace-local"}, []string{"apiregistration.k8s.io/apiservices"}},
	{"write CustomResourceDefinitions", anyWrite, []string{"apiextensions.k8s.io/customresourcedefinitions"}},
	{"redirect Services", setting, []string{"/services", "/services/status"}},
	{"redirect endpoints", setting, []string{"/endpoints", "discovery.k8s.io/endpointslices"}},
	{"proxy to pods and Services", []string{"get", "create"}, []string{"/services/proxy", "/pods/proxy"}},
	{"run pods", setting, []string{
		"/pods", "/replicationcontrollers", "apps/deployments", "apps/daemonsets", "apps/statefulsets", "apps/replicasets", "batch/jobs", "batch/cronjobs",
	}},
	{"enter pods", []string{"create", "get", "update", "patch"}, []string{"/pods/exec", "/pods/attach", "/pods/portforward", "/pods/ephemeralcontainers"}},
	{"create tokens", []string{"create"}, []string{"/serviceaccounts/token"}},
	{"approve certificates", []string{"update", "patch", "approve", "sign", "attest"}, []string{
		"certificates.k8s.io/certificatesigningrequests/approval", "certificates.k8s.io/certificatesigningrequests/status", "certificates.k8s.io/signers",
	}},
	{"nodes/proxy", []string{"get", "create", "update", "patch", "delete"}, []string{"/nodes/proxy"}},
	{"write Nodes", anyWrite, []string{"/nodes", "/nodes/status"}},
	{"write Namespaces", anyWrite, []string{"/namespaces", "/namespaces/finalize", "/namespaces/status"}},
	{"ask about anybody's tokens and rights", []string{"create"}, []string{
		"authentication.k8s.io/tokenreviews", "authorization.k8s.io/subjectaccessreviews",
	}},
}

// worst returns the capabilities that the rules grant, each with the names to which it is limited, in the order of the list.
func worst(rules []rbacv1.PolicyRule) []string {
	var found []string
	for _, c := range dangerous {
		free, names := false, []string{}
		for _, rule := range rules {
			if !slices.ContainsFunc(c.verbs, func(v string) bool { return has(rule.Verbs, v) }) ||
				!slices.ContainsFunc(c.on, func(on string) bool { return covers(rule, on) }) {
				continue
			}
			free = free || len(rule.ResourceNames) == 0
			names = append(names, rule.ResourceNames...)
		}
		switch slices.Sort(names); {
		case free:
			found = append(found, c.name)
		case len(names) > 0:
			found = append(found, c.name+" named "+strings.Join(slices.Compact(names), ", "))
		}
	}
	for _, rule := range rules {
		for _, url := range rule.NonResourceURLs {
			if strings.HasPrefix(url, "/debug") || strings.HasPrefix(url, "/logs") || url == "*" || url == "/*" {
				found = append(found, "read "+url)
			}
		}
	}
	return found
}

func has(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

func covers(rule rbacv1.PolicyRule, on string) bool {
	group, resource, _ := strings.Cut(on, "/")
	if !has(rule.APIGroups, group) {
		return false
	}
	_, sub, isSub := strings.Cut(resource, "/")
	return has(rule.Resources, resource) || isSub && slices.Contains(rule.Resources, "*/"+sub)
}

// writtenLater are the rules of ClusterRoles that lie in deploy without rules and get them by a command: `aggregator adopt` names each APIService.
var writtenLater = map[string][]rbacv1.PolicyRule{
	"portico-gateway-adopted": {{
		APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices", "apiservices/status"}, ResourceNames: []string{"(adopted)"}, Verbs: []string{"update"},
	}},
}

// shippedRole is a Role or ClusterRole as it is printed or lies in deploy, or a reference to one.
type shippedRole struct {
	APIVersion, Kind string
	Metadata         struct {
		Namespace, Name string
		Labels          map[string]string
	}
	Rules   []rbacv1.PolicyRule
	RoleRef rbacv1.RoleRef
}

// TestCapabilitiesOfShippedRolesMatchReview compares every role that `extserver manifests` prints, `aggregator dev` creates or deploy
// contains with testdata/shipped-roles.txt. A line "at worst" in that file is a reviewed decision. A role that gains a
// capability fails this test until the line is added.
func TestCapabilitiesOfShippedRolesMatchReview(t *testing.T) {
	var got strings.Builder
	tell := func(source string, roles []shippedRole) {
		fmt.Fprintf(&got, "%s\n", source)
		for _, r := range roles {
			if r.Kind == "ClusterRoleBinding" || r.Kind == "RoleBinding" {
				continue
			}
			fmt.Fprintf(&got, "  %s %s\n", r.Kind, strings.TrimPrefix(r.Metadata.Namespace+"/"+r.Metadata.Name, "/"))
			for label := range r.Metadata.Labels {
				fmt.Fprintf(&got, "    label %s\n", label)
			}
			if later, ok := writtenLater[r.Metadata.Name]; ok && r.Kind == "ClusterRole" {
				r.Rules = append(r.Rules, later...)
			}
			for _, rule := range r.Rules {
				fmt.Fprintf(&got, "    may %s\n", sentence(rule))
			}
			fmt.Fprintf(&got, "    at worst: %s\n", cmp.Or(strings.Join(worst(r.Rules), "; "), "none of the list"))
		}
		for _, r := range roles {
			if ref := r.RoleRef; ref.Name != "" && !slices.ContainsFunc(roles, func(o shippedRole) bool { return o.Kind == ref.Kind && o.Metadata.Name == ref.Name }) {
				rules := bootstrapRules(t, ref, r.Metadata.Namespace)
				fmt.Fprintf(&got, "  bound: %s %s, at worst: %s\n", ref.Kind, ref.Name, cmp.Or(strings.Join(worst(rules), "; "), "none of the list"))
			}
		}
		got.WriteString("\n")
	}

	rules := filepath.Join(t.TempDir(), "adapter.yaml")
	if err := os.WriteFile(rules, []byte(`rules:
- seriesQuery: 'tickets{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}, queue: {group: stats.example.com, resource: queue}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		source string
		change func(*extserver.Options)
	}{
		{"extserver manifests", func(*extserver.Options) {}},
		{"extserver manifests --advertise-address=192.0.2.1", func(o *extserver.Options) { o.AdvertiseAddresses = []string{"192.0.2.1"} }},
		{"extserver manifests --advertise-address=192.0.2.1 --create-registration", func(o *extserver.Options) {
			o.AdvertiseAddresses, o.CreateRegistration = []string{"192.0.2.1"}, true
		}},
		{"extserver manifests --create-registration, which is what aggregator dev grants", func(o *extserver.Options) { o.CreateRegistration = true }},
		{"extserver manifests --metrics-source=kubelet", func(o *extserver.Options) { o.Metrics.Source = extserver.FromKubelets }},
		{"extserver manifests --metrics-source=prometheus", func(o *extserver.Options) { o.Metrics.Source = extserver.FromPrometheus }},
		{"extserver manifests --metrics-source=none --projects", func(o *extserver.Options) {
			o.Metrics.Source, o.Projects.Enabled = extserver.FromNowhere, true
		}},
		{"extserver manifests --metrics-source=none --custom-metrics-rules=adapter.yaml", func(o *extserver.Options) {
			o.Metrics.Source, o.CustomMetrics.Rules = extserver.FromNowhere, []string{rules}
		}},
	} {
		o := extserver.Options{Options: extension.Options{Client: &rest.Config{Host: "https://192.0.2.1"}, Port: 4443}, NodeName: "n"}
		o.Prometheus.URL = "http://192.0.2.1:9090"
		v.change(&o)
		manifests, err := extserver.Manifests(o)
		if err != nil {
			t.Fatalf("Manifests of %s failed: %v, want no error", v.source, err)
		}
		text, err := json.Marshal(manifests)
		if err != nil {
			t.Fatal(err)
		}
		var all []shippedRole
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		tell(v.source, onlyRBAC(all))
	}
	for _, file := range deployedFiles(t) {
		tell("deploy/"+file.name, file.roles)
	}

	golden := filepath.Join("testdata", "shipped-roles.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("shipped roles differ from %s, want equal ones: review the capabilities of each and update the file\n%s", golden, got.String())
	}
}

func onlyRBAC(all []shippedRole) []shippedRole {
	return slices.DeleteFunc(all, func(r shippedRole) bool { return !strings.HasPrefix(r.APIVersion, rbacv1.GroupName+"/") })
}

type deployedFile struct {
	name  string
	roles []shippedRole
}

// deployedFiles are the files below deploy that have anything of RBAC in them.
func deployedFiles(t *testing.T) []deployedFile {
	t.Helper()
	const root = "../../deploy"
	var files []deployedFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "chart" {
			return fs.SkipDir // templates; e2e/chart compares their output with the files here
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var roles []shippedRole
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var raw json.RawMessage
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			var one shippedRole
			if json.Unmarshal(raw, &one) == nil { // a JSON patch is a list
				roles = append(roles, one)
			}
		}
		if roles = onlyRBAC(roles); len(roles) > 0 {
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, deployedFile{filepath.ToSlash(name), roles})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Fatalf("%d files with roles below deploy, want at least 2", len(files))
	}
	return files
}

// bootstrapRules returns the rules of a role of the first start.
func bootstrapRules(t *testing.T, ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	t.Helper()
	p := rbac.Bootstrap()
	for _, r := range p.ClusterRoles {
		if ref.Kind == "ClusterRole" && r.Name == ref.Name {
			return r.Rules
		}
	}
	for _, r := range p.Roles {
		if ref.Kind == "Role" && r.Name == ref.Name && r.Namespace == namespace {
			return r.Rules
		}
	}
	t.Fatalf("%s %s is bound and is not a role of the first start, want one", ref.Kind, ref.Name)
	return nil
}

func sentence(r rbacv1.PolicyRule) string {
	verbs := strings.Join(r.Verbs, ",")
	if len(r.NonResourceURLs) > 0 {
		return verbs + " " + strings.Join(r.NonResourceURLs, ",")
	}
	var on []string
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			on = append(on, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	return strings.TrimSpace(verbs + " " + strings.Join(on, ",") + " " + strings.Join(r.ResourceNames, ","))
}

// The roles of the first start are kube-apiserver's (auth/rbac compares them with a recording). This test checks that only
// cluster-admin may replace an API that Portico serves.
func TestOnlyClusterAdminMayReplaceLocalAPIs(t *testing.T) {
	p := rbac.Bootstrap()
	var may []string
	gathered := rbac.Aggregate(p.ClusterRoles)
	for _, r := range p.ClusterRoles {
		rules := r.Rules
		if r.AggregationRule != nil {
			rules = gathered[r.Name]
		}
		if slices.Contains(worst(rules), "replace what is served here") {
			may = append(may, r.Name)
		}
	}
	for _, r := range p.Roles {
		if slices.Contains(worst(r.Rules), "replace what is served here") {
			may = append(may, r.Name)
		}
	}
	if !slices.Equal(may, []string{"cluster-admin"}) {
		t.Errorf("roles that may replace local APIs = %v, want only cluster-admin", may)
	}
}

// worst finds every capability of the list.
func TestDangerousCapabilitiesAreFound(t *testing.T) {
	old := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "get", "patch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"create", "get", "patch"}},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"create", "delete", "get", "patch"}},
	}
	if got := strings.Join(worst(old), "; "); got != "write APIServices; delete APIServices; redirect Services; redirect endpoints" {
		t.Errorf("capabilities of a broad role = %s, want APIServices, Services and endpoints", got)
	}
	for _, c := range dangerous {
		for _, on := range c.on {
			group, resource, _ := strings.Cut(on, "/")
			for _, rule := range []rbacv1.PolicyRule{
				{APIGroups: []string{group}, Resources: []string{resource}, Verbs: c.verbs[:1]},
				{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: c.verbs[:1]},
				{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}},
			} {
				if !slices.Contains(worst([]rbacv1.PolicyRule{rule}), c.name) {
					t.Errorf("capability %s is missing in %s, want it found", c.name, sentence(rule))
				}
			}
		}
	}
}
