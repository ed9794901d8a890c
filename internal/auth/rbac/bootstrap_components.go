package rbac

import (
	_ "embed"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

//go:embed bootstrap_components.txt
var componentRoles string

// components returns the roles of cluster components: kube-controller-manager, kube-scheduler, kube-proxy, DNS,
// kubelets. None of them is part of this server. They have the same permissions as with kube-apiserver, so that they
// run unchanged.
func components() Policy {
	return Policy{
		ClusterRoles: rolesIn(componentRoles),
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{
			bindGroups("system:cluster-trust-bundle-discovery", serviceaccount.AllServiceAccountsGroup),
			bind("system:kube-controller-manager", username(user.KubeControllerManager)),
			bind("system:kube-dns", account("kube-dns")),
			bind("system:kube-scheduler", username(user.KubeScheduler)),
			bind("system:volume-scheduler", username(user.KubeScheduler)),
			bind("system:node-proxier", username(user.KubeProxy)),
			bind("system:node"), // no subjects: the administrator grants rights to individual kubelets
		},
		Roles: []*rbacv1.Role{
			namespacedRole(metav1.NamespaceSystem, locking+"kube-controller-manager", lockingRules()...),
			namespacedRole(metav1.NamespaceSystem, locking+"kube-scheduler", lockingRules()...),
			namespacedRole(metav1.NamespaceSystem, controllerPrefix+"bootstrap-signer", may(read...).inGroup("", "secrets")),
			namespacedRole(metav1.NamespaceSystem, controllerPrefix+"cloud-provider", may("create", "get", "list", "watch").inGroup("", "configmaps")),
			namespacedRole(metav1.NamespaceSystem, controllerPrefix+"token-cleaner", may("delete", "get", "list", "watch").inGroup("", "secrets"), events),
			namespacedRole(metav1.NamespacePublic, controllerPrefix+"bootstrap-signer",
				may(read...).inGroup("", "configmaps"), may("update").inGroup("", "configmaps").named("cluster-info"), events),
		},
		RoleBindings: []*rbacv1.RoleBinding{
			bindRole(metav1.NamespaceSystem, locking+"kube-controller-manager", username(user.KubeControllerManager),
				account("kube-controller-manager"), account("leader-election-controller")),
			bindRole(metav1.NamespaceSystem, locking+"kube-scheduler", username(user.KubeScheduler), account("kube-scheduler")),
			bindRole(metav1.NamespaceSystem, controllerPrefix+"bootstrap-signer", account("bootstrap-signer")),
			bindRole(metav1.NamespaceSystem, controllerPrefix+"cloud-provider", account("cloud-provider")),
			bindRole(metav1.NamespaceSystem, controllerPrefix+"token-cleaner", account("token-cleaner")),
			bindRole(metav1.NamespacePublic, controllerPrefix+"bootstrap-signer", account("bootstrap-signer")),
		},
	}
}

const locking = "system::leader-locking-"

func lockingRules() []ruleBuilder {
	verbs := []string{"create", "get", "list", "update", "watch"}
	return []ruleBuilder{may(verbs...).inGroup("coordination.k8s.io", "leases"), may(verbs...).inGroup("coordination.k8s.io", "leasecandidates")}
}

func username(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func namespacedRole(namespace, name string, rules ...ruleBuilder) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: meta(namespace, name), Rules: sentences(rules)}
}

// bindRole binds a Role under its own name.
func bindRole(namespace, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(namespace, role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   subjects,
	}
}

// events allows writing events.
var events = may("create", "patch", "update").in("", "events.k8s.io").resources("events")

//go:embed bootstrap_controllers.txt
var controllerRoles string

// controllers returns the roles of kube-controller-manager's controllers, each bound to the service account of the
// same name in kube-system. Some of these controllers run in this server. The other roles are for a
// kube-controller-manager that runs with --use-service-account-credentials.
func controllers() Policy {
	var p Policy
	for _, role := range rolesIn(controllerRoles) {
		name := role.Name
		role.Name = controllerPrefix + name
		p.ClusterRoles = append(p.ClusterRoles, role)
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, bind(role.Name, account(name)))
	}
	return p
}

const controllerPrefix = "system:controller:"

func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}
