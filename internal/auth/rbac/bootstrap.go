package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Bootstrap returns the initial roles and bindings of a server. They are the same objects as kube-apiserver's, so
// that manifests and components written for Kubernetes find the roles and permissions they need.
func Bootstrap() Policy {
	var p Policy
	for _, part := range []Policy{allUsers(), workload(), delegation(), components(), controllers()} {
		p.ClusterRoles = append(p.ClusterRoles, part.ClusterRoles...)
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, part.ClusterRoleBindings...)
		p.Roles = append(p.Roles, part.Roles...)
		p.RoleBindings = append(p.RoleBindings, part.RoleBindings...)
	}
	return p
}

// allUsers returns the roles of all users (discovery, health, self reviews) and cluster-admin.
func allUsers() Policy {
	health := []string{"/livez", "/readyz", "/healthz"}
	version := []string{"/version", "/version/"}
	apis := []string{"/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*"}
	issuer := []string{"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"}
	return Policy{
		ClusterRoles: []*rbacv1.ClusterRole{
			clusterRole("cluster-admin", may("*").inGroup("*", "*"), may("*").urls("*")),
			clusterRole("system:discovery", may("get").urls(append(append(append([]string(nil), health...), version...), apis...)...)),
			clusterRole("system:public-info-viewer", may("get").urls(append(append([]string(nil), health...), version...)...)),
			clusterRole("system:basic-user",
				may("create").inGroup("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
				may("create").inGroup("authentication.k8s.io", "selfsubjectreviews")),
			clusterRole("system:monitoring",
				may("get").urls("/metrics", "/metrics/slis", "/livez", "/livez/*", "/readyz", "/readyz/*", "/healthz", "/healthz/*", "/flagz", "/statusz"),
				may("get").inGroup("", "nodes/metrics")),
			clusterRole("system:service-account-issuer-discovery", may("get").urls(issuer...)),
		},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			bindGroups("cluster-admin", user.SystemPrivilegedGroup),
			bindGroups("system:discovery", user.AllAuthenticated),
			bindGroups("system:basic-user", user.AllAuthenticated),
			bindGroups("system:public-info-viewer", user.AllAuthenticated, user.AllUnauthenticated),
			bindGroups("system:monitoring", user.MonitoringGroup),
			// A workload can read the issuer in its own token anyway. Access for other users is up to the
			// administrator.
			bindGroups("system:service-account-issuer-discovery", serviceaccount.AllServiceAccountsGroup),
		},
	}
}

// delegation returns the roles of extension servers and the front door for each other.
func delegation() Policy {
	const reader = "extension-apiserver-authentication-reader"
	return Policy{
		ClusterRoles: []*rbacv1.ClusterRole{
			clusterRole("system:auth-delegator",
				may("create").inGroup("authentication.k8s.io", "tokenreviews"),
				may("create").inGroup("authorization.k8s.io", "subjectaccessreviews")),
			clusterRole("system:kube-aggregator",
				may(read...).inGroup("", "services", "endpoints")),
		},
		Roles: []*rbacv1.Role{{
			ObjectMeta: meta(metav1.NamespaceSystem, reader),
			Rules:      sentences([]ruleBuilder{may(read...).inGroup("", "configmaps").named("extension-apiserver-authentication")}),
		}},
		RoleBindings: []*rbacv1.RoleBinding{{
			ObjectMeta: meta(metav1.NamespaceSystem, "system::"+reader),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: reader},
			Subjects:   []rbacv1.Subject{username(user.KubeControllerManager), username(user.KubeScheduler)},
		}},
	}
}

var (
	read      = []string{"get", "list", "watch"}
	write     = []string{"create", "update", "patch", "delete", "deletecollection"}
	readWrite = append(append([]string(nil), read...), write...)
)

// ruleBuilder builds policy rules in a readable form: may(read...).on("", "pods").
type ruleBuilder struct{ r rbacv1.PolicyRule }

func may(verbs ...string) ruleBuilder {
	return ruleBuilder{rbacv1.PolicyRule{Verbs: append([]string(nil), verbs...)}}
}

func (b ruleBuilder) inGroup(group string, resources ...string) ruleBuilder {
	return b.in(group).resources(resources...)
}

func (b ruleBuilder) in(groups ...string) ruleBuilder {
	b.r.APIGroups = groups
	return b
}

func (b ruleBuilder) resources(resources ...string) ruleBuilder {
	b.r.Resources = resources
	return b
}

func (b ruleBuilder) named(names ...string) ruleBuilder {
	b.r.ResourceNames = names
	return b
}

func (b ruleBuilder) urls(urls ...string) ruleBuilder {
	b.r.NonResourceURLs = urls
	return b
}

// rule returns the rule with sorted lists, as kube-apiserver stores it.
func (b ruleBuilder) rule() rbacv1.PolicyRule {
	r := b.r.DeepCopy()
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		slices.Sort(list)
	}
	return *r
}

func sentences(builders []ruleBuilder) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, b := range builders {
		rules = append(rules, b.rule())
	}
	return rules
}

func clusterRole(name string, rules ...ruleBuilder) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: sentences(rules)}
}

func bindGroups(role string, groups ...string) *rbacv1.ClusterRoleBinding {
	var subjects []rbacv1.Subject
	for _, g := range groups {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g})
	}
	return bind(role, subjects...)
}

// bind binds a ClusterRole under its own name, like all bootstrap bindings.
func bind(role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      maps.Clone(bootstrapLabels),
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

var bootstrapLabels = map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
