package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	finalizer = "clients.portico.dev/cleanup"
	ready     = "Ready"
)

// gadgetController creates a ConfigMap with the color of each Gadget, and deletes it before the Gadget is removed.
type gadgetController struct {
	client   client.Client
	recorder events.EventRecorder
}

func addGadgetController(m manager.Manager) error {
	return builder.ControllerManagedBy(m).For(&Gadget{}).Owns(&corev1.ConfigMap{}).
		Complete(&gadgetController{m.GetClient(), m.GetEventRecorder("gadgets")})
}

func (c *gadgetController) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	g := &Gadget{}
	if err := c.client.Get(ctx, request.NamespacedName, g); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !g.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, c.finish(ctx, g)
	}
	if controllerutil.AddFinalizer(g, finalizer) {
		if err := c.client.Update(ctx, g); err != nil {
			return reconcile.Result{}, passing(err)
		}
	}
	if err := c.give(ctx, g); err != nil {
		return reconcile.Result{}, passing(err)
	}
	if g.Status.ObservedGeneration == g.Generation {
		return reconcile.Result{}, nil
	}
	g.Status.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{
		Type: ready, Status: metav1.ConditionTrue, Reason: "Given", ObservedGeneration: g.Generation,
	})
	if err := c.client.Status().Update(ctx, g); err != nil {
		return reconcile.Result{}, passing(err)
	}
	c.recorder.Eventf(g, nil, corev1.EventTypeNormal, "Given", "Give", "it is %s", g.Spec.Color)
	say("gadget %s is ready: %s", request, g.Spec.Color)
	return reconcile.Result{}, nil
}

// give creates or updates the ConfigMap.
func (c *gadgetController) give(ctx context.Context, g *Gadget) error {
	to := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name + "-color"}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.client, to, func() error {
		to.Data = map[string]string{"color": g.Spec.Color}
		return controllerutil.SetControllerReference(g, to, c.client.Scheme())
	})
	return err
}

// finish deletes the ConfigMap and removes the finalizer.
func (c *gadgetController) finish(ctx context.Context, g *Gadget) error {
	if !controllerutil.ContainsFinalizer(g, finalizer) {
		return nil
	}
	given := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name + "-color"}}
	if err := c.client.Delete(ctx, given); client.IgnoreNotFound(err) != nil {
		return err
	}
	controllerutil.RemoveFinalizer(g, finalizer)
	if err := c.client.Update(ctx, g); client.IgnoreNotFound(err) != nil {
		return passing(err)
	}
	say("gadget %s is let go", client.ObjectKeyFromObject(g))
	return nil
}

// passing wraps errors that are retried after the cache has caught up.
func passing(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the cache is behind: %w", err)
	}
	return err
}

// addAccountController watches only the metadata of service accounts.
func addAccountController(m manager.Manager) error {
	c := m.GetClient()
	return builder.ControllerManagedBy(m).Named("accounts").For(&corev1.ServiceAccount{}, builder.OnlyMetadata).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			account := &metav1.PartialObjectMetadata{}
			account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
			switch err := c.Get(ctx, request.NamespacedName, account); {
			case apierrors.IsNotFound(err):
				say("account %s is gone", request)
			case err != nil:
				return reconcile.Result{}, err
			default:
				say("account %s is there", request)
			}
			return reconcile.Result{}, nil
		}))
}

// addQueueController watches a resource of an extension server without a Go type.
func addQueueController(m manager.Manager) error {
	c, kind := m.GetClient(), schema.GroupVersionKind{Group: "stats.example.com", Version: "v1", Kind: "Queue"}
	queue := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u
	}
	return builder.ControllerManagedBy(m).Named("queues").For(queue()).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			q := queue()
			switch err := c.Get(ctx, request.NamespacedName, q); {
			case apierrors.IsNotFound(err):
				say("queue %s is gone", request)
			case err != nil:
				return reconcile.Result{}, err
			default:
				depth, _, _ := unstructured.NestedInt64(q.Object, "status", "depth")
				say("queue %s has %d", request, depth)
			}
			return reconcile.Result{}, nil
		}))
}
