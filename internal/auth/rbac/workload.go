package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// workload returns the roles for users of a namespace: admin, edit and view. Each aggregates the roles labeled for it
// and for the role below it, so an extension can add its resources to all three with labeled roles.
//
// The aggregated rules are stored in the three roles as well. Decisions do not use them, but clients read them, and
// so do checks that compare a role with the rights of the user who binds it.
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

// adminRules returns the rules for granting rights within the namespace.
func adminRules() []ruleBuilder {
	return []ruleBuilder{
		may("create").inGroup("authorization.k8s.io", "localsubjectaccessreviews"),
		may(readWrite...).inGroup(rbacv1.GroupName, "roles", "rolebindings"),
	}
}

// editRules returns the rules for everything in the namespace except rights, quotas and limits. A user who may run
// pods may act as any service account of the namespace, so reading secrets and impersonating service accounts adds no
// rights. Writing endpoints is excluded (CVE-2021-25740), because it can redirect traffic of other users.
func editRules() []ruleBuilder {
	return []ruleBuilder{
		may(read...).inGroup("", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"),
		may("impersonate").inGroup("", "serviceaccounts"),
		may(write...).inGroup("", "pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"),
		may("create").inGroup("", "pods/eviction"),
		may(write...).inGroup("", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts",
			"services", "services/proxy", "persistentvolumeclaims", "configmaps", "secrets"),
		may("create").inGroup("", "serviceaccounts/token"),
		may(write...).in("", "events.k8s.io").resources("events"),
		may(write...).inGroup("apps", "statefulsets", "statefulsets/scale", "daemonsets",
			"deployments", "deployments/scale", "deployments/rollback", "replicasets", "replicasets/scale"),
		may(write...).inGroup("autoscaling", "horizontalpodautoscalers"),
		may(write...).inGroup("batch", "jobs", "cronjobs"),
		may(write...).inGroup("extensions", "daemonsets", "deployments", "deployments/scale", "deployments/rollback", "ingresses",
			"replicasets", "replicasets/scale", "replicationcontrollers/scale", "networkpolicies"),
		may(write...).inGroup("policy", "poddisruptionbudgets"),
		may(write...).inGroup("networking.k8s.io", "networkpolicies", "ingresses"),
		may(readWrite...).inGroup("coordination.k8s.io", "leases"),
		may(write...).inGroup("resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
	}
}

// viewRules returns the rules for reading objects that do not give further rights: no secrets, no tokens, no access
// to pods.
func viewRules() []ruleBuilder {
	return []ruleBuilder{
		may(read...).inGroup("", "pods", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts",
			"services", "services/status", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "configmaps"),
		may(read...).inGroup("", "limitranges", "resourcequotas", "bindings",
			"pods/status", "resourcequotas/status", "namespaces/status", "replicationcontrollers/status", "pods/log"),
		// With a namespaced binding this covers only that namespace, and shows that the user has access to it.
		may(read...).inGroup("", "namespaces"),
		may(read...).in("", "events.k8s.io").resources("events"),
		may(read...).inGroup("discovery.k8s.io", "endpointslices"),
		may(read...).inGroup("apps", "controllerrevisions", "statefulsets", "statefulsets/status", "statefulsets/scale",
			"daemonsets", "daemonsets/status", "deployments", "deployments/status", "deployments/scale",
			"replicasets", "replicasets/status", "replicasets/scale"),
		may(read...).inGroup("autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		may(read...).inGroup("batch", "jobs", "jobs/status", "cronjobs", "cronjobs/status"),
		may(read...).inGroup("extensions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"ingresses", "ingresses/status", "replicasets", "replicasets/scale", "replicasets/status",
			"replicationcontrollers/scale", "networkpolicies"),
		may(read...).inGroup("policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
		may(read...).inGroup("networking.k8s.io", "networkpolicies", "ingresses", "ingresses/status"),
		may(read...).inGroup("resource.k8s.io", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
	}
}
