package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// workload is admin, edit and view, the roles for users of a namespace. Each aggregates the roles that are labelled for
// it and the one below it, so that an extension adds its resources to all three by labelling roles of its own.
//
// The aggregated rules are written into the three as well. No decision reads them there, but people do, and so do
// checks that compare a role with the rights of the user who binds it.
func workload() Policy {
	roles := []*rbacv1.ClusterRole{
		aggregated("admin", ""),
		aggregated("edit", "admin"),
		aggregated("view", "edit"),
		labelled(clusterRole("system:aggregate-to-admin", adminRules()...), "admin"),
		labelled(clusterRole("system:aggregate-to-edit", editRules()...), "edit"),
		labelled(clusterRole("system:aggregate-to-view", viewRules()...), "view"),
	}
	gathered := Aggregate(roles)
	for _, r := range roles {
		r.Rules = gathered[r.Name]
	}
	return Policy{ClusterRoles: roles}
}

func aggregated(name, into string) *rbacv1.ClusterRole {
	role := clusterRole(name)
	role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{aggregateTo + name: "true"}},
	}}
	if into != "" {
		labelled(role, into)
	}
	return role
}

func labelled(role *rbacv1.ClusterRole, into string) *rbacv1.ClusterRole {
	role.Labels[aggregateTo+into] = "true"
	return role
}

// adminRules are the right to grant rights within the namespace.
func adminRules() []ruleBuilder {
	return []ruleBuilder{
		may("create").on("authorization.k8s.io", "localsubjectaccessreviews"),
		may(readWrite...).on(rbacv1.GroupName, "roles", "rolebindings"),
	}
}

// editRules are everything in the namespace but rights, quotas and limits. A user who may run pods may act as any
// service account of the namespace, so reading secrets and impersonating accounts adds nothing to it. Writing endpoints
// is missing on purpose (CVE-2021-25740): it redirects other people's traffic.
func editRules() []ruleBuilder {
	return []ruleBuilder{
		may(read...).on("", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"),
		may("impersonate").on("", "serviceaccounts"),
		may(write...).on("", "pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"),
		may("create").on("", "pods/eviction"),
		may(write...).on("", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts",
			"services", "services/proxy", "persistentvolumeclaims", "configmaps", "secrets"),
		may("create").on("", "serviceaccounts/token"),
		may(write...).in("", "events.k8s.io").resources("events"),
		may(write...).on("apps", "statefulsets", "statefulsets/scale", "daemonsets",
			"deployments", "deployments/scale", "deployments/rollback", "replicasets", "replicasets/scale"),
		may(write...).on("autoscaling", "horizontalpodautoscalers"),
		may(write...).on("batch", "jobs", "cronjobs"),
		may(write...).on("extensions", "daemonsets", "deployments", "deployments/scale", "deployments/rollback", "ingresses",
			"replicasets", "replicasets/scale", "replicationcontrollers/scale", "networkpolicies"),
		may(write...).on("policy", "poddisruptionbudgets"),
		may(write...).on("networking.k8s.io", "networkpolicies", "ingresses"),
		may(readWrite...).on("coordination.k8s.io", "leases"),
		may(write...).on("resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
	}
}

// viewRules are reading what gives no further rights: no secrets, no tokens, no access to pods.
func viewRules() []ruleBuilder {
	return []ruleBuilder{
		may(read...).on("", "pods", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts",
			"services", "services/status", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "configmaps"),
		may(read...).on("", "limitranges", "resourcequotas", "bindings",
			"pods/status", "resourcequotas/status", "namespaces/status", "replicationcontrollers/status", "pods/log"),
		// In a namespace this is the one namespace: it says which ones a user has access to.
		may(read...).on("", "namespaces"),
		may(read...).in("", "events.k8s.io").resources("events"),
		may(read...).on("discovery.k8s.io", "endpointslices"),
		may(read...).on("apps", "controllerrevisions", "statefulsets", "statefulsets/status", "statefulsets/scale",
			"daemonsets", "daemonsets/status", "deployments", "deployments/status", "deployments/scale",
			"replicasets", "replicasets/status", "replicasets/scale"),
		may(read...).on("autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		may(read...).on("batch", "jobs", "jobs/status", "cronjobs", "cronjobs/status"),
		may(read...).on("extensions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"ingresses", "ingresses/status", "replicasets", "replicasets/scale", "replicasets/status",
			"replicationcontrollers/scale", "networkpolicies"),
		may(read...).on("policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
		may(read...).on("networking.k8s.io", "networkpolicies", "ingresses", "ingresses/status"),
		may(read...).on("resource.k8s.io", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
	}
}
