package rbac

import (
	_ "embed"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// events is the right to say what happened.
var events = may("create", "patch", "update").in("", "events.k8s.io").resources("events")

//go:embed bootstrap_controllers.txt
var controllerRoles string

// controllers are the rights of the controllers of kube-controller-manager, each bound to the service account of its name in
// kube-system. Some of them run in this house; the others are there for a kube-controller-manager that runs in front of it
// with --use-service-account-credentials.
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
