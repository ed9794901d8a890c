// Package operator keeps a Secret with a random password for every ConfigMap that is labelled for one.
package operator

import (
	"context"
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Label asks for a password.
const Label = "password.example.com/wanted"

// Reconciler makes the Secrets. A Secret belongs to its ConfigMap and goes with it.
type Reconciler struct{ client.Client }

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	unique := true // managers of several tests run in one process
	return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		WithOptions(controller.Options{SkipNameValidation: &unique}).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var owner corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &owner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, wanted := owner.Labels[Label]; !wanted || owner.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, secret, func() error {
		if len(secret.Data["password"]) == 0 {
			secret.Data = map[string][]byte{"password": []byte(rand.Text())}
		}
		return controllerutil.SetControllerReference(&owner, secret, r.Scheme())
	})
	return ctrl.Result{}, err
}
