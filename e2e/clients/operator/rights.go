package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// asked is the annotation: verbs, a space, resources of the core group.
	asked = "clients.portico.dev/may"
	// given is a label on the objects created by the operator, which deletes only these.
	given = "clients.portico.dev/given"
	owner = "clients-operator"
)

type operator struct {
	client   kubernetes.Interface
	accounts corev1listers.ServiceAccountLister
	queue    workqueue.TypedRateLimitingInterface[string]
}

func (o *operator) reconcile(ctx context.Context, key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return err
	}
	account, err := o.accounts.ServiceAccounts(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && account.DeletionTimestamp != nil {
		return nil // the garbage collector deletes its Role and RoleBinding
	}
	if err != nil {
		return err
	}
	verbs, resources, ok := strings.Cut(account.Annotations[asked], " ")
	if !ok {
		return o.takeBack(ctx, account)
	}
	err = o.give(ctx, account, strings.Split(verbs, ","), strings.Split(resources, ","))
	switch {
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		say("%s refused %s: %v", key, account.Annotations[asked], err)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return nil // the namespace is being deleted
	case err != nil:
		return err
	}
	say("%s may %s", key, account.Annotations[asked])
	return nil
}

// give creates or updates the Role and the RoleBinding.
func (o *operator) give(ctx context.Context, account *corev1.ServiceAccount, verbs, resources []string) error {
	name, labels := account.Name+"-may", map[string]string{given: "yes"}
	belongs := metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("ServiceAccount").WithName(account.Name).WithUID(account.UID)
	options := metav1.ApplyOptions{FieldManager: owner, Force: true}
	role := rbacv1ac.Role(name, account.Namespace).WithLabels(labels).WithOwnerReferences(belongs).
		WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources(resources...).WithVerbs(verbs...))
	if _, err := o.client.RbacV1().Roles(account.Namespace).Apply(ctx, role, options); err != nil {
		return err
	}
	binding := rbacv1ac.RoleBinding(name, account.Namespace).WithLabels(labels).WithOwnerReferences(belongs).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(name)).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(account.Namespace).WithName(account.Name))
	_, err := o.client.RbacV1().RoleBindings(account.Namespace).Apply(ctx, binding, options)
	return err
}

// takeBack deletes the permissions of an account that no longer has the annotation.
func (o *operator) takeBack(ctx context.Context, account *corev1.ServiceAccount) error {
	name := account.Name + "-may"
	role, err := o.client.RbacV1().Roles(account.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && role.Labels[given] == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if err := o.client.RbacV1().RoleBindings(account.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := o.client.RbacV1().Roles(account.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	say("%s/%s may no more", account.Namespace, account.Name)
	return nil
}
