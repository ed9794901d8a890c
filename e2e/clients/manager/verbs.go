package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// verbs calls every method of a client once, when the manager becomes the leader.
type verbs struct {
	manager   manager.Manager
	namespace string
}

// Start is called when this manager has become the leader.
func (v *verbs) Start(ctx context.Context) error {
	say("leads")
	for _, step := range []struct {
		name string
		do   func(context.Context, client.Client) error
	}{
		{"create", v.create}, {"get", v.get}, {"list", v.list}, {"update", v.update},
		{"patch merge", v.patchMerge}, {"patch json", v.patchJSON}, {"patch strategic", v.patchStrategic},
		{"apply", v.apply}, {"apply unstructured", v.applyUnstructured},
		{"status", v.status}, {"scale", v.scale}, {"token", v.token}, {"binding and eviction", v.bindAndEvict},
		{"dry run", v.dryRun}, {"delete", v.remove}, {"delete collection", v.removeAll},
	} {
		if err := step.do(ctx, v.manager.GetClient()); err != nil {
			return fmt.Errorf("verb %s: %w", step.name, err)
		}
		say("verb %s done", step.name)
	}
	say("verbs done")
	<-ctx.Done()
	return nil
}

func (v *verbs) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: v.namespace, Name: name, Labels: map[string]string{"verbs": "yes"}}
}

func (v *verbs) configMap() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: v.meta("verbs")} }

func (v *verbs) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "verbs"}
	return &appsv1.Deployment{ObjectMeta: v.meta("verbs"), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(1)),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "one", Image: "one"}, {Name: "two", Image: "two"}},
		}},
	}}
}

func (v *verbs) create(ctx context.Context, c client.Client) error {
	for _, o := range []client.Object{
		v.configMap(), v.deployment(), &corev1.ServiceAccount{ObjectMeta: v.meta("verbs")},
		&corev1.Pod{ObjectMeta: v.meta("verbs"), Spec: corev1.PodSpec{
			ServiceAccountName: "verbs", Containers: []corev1.Container{{Name: "one", Image: "one"}},
		}},
	} {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("%T: %w", o, err)
		}
		if o.GetUID() == "" || o.GetResourceVersion() == "" {
			return fmt.Errorf("%T was answered without uid or resourceVersion", o)
		}
	}
	if err := c.Create(ctx, v.configMap()); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second time: %v", err)
	}
	return nil
}

// get bypasses the cache, which may be behind.
func (v *verbs) get(ctx context.Context, _ client.Client) error {
	read := v.manager.GetAPIReader()
	if err := read.Get(ctx, client.ObjectKeyFromObject(v.deployment()), &appsv1.Deployment{}); err != nil {
		return err
	}
	if err := read.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: "none"}, v.configMap()); !apierrors.IsNotFound(err) {
		return fmt.Errorf("of none: %v", err)
	}
	return nil
}

func (v *verbs) list(ctx context.Context, _ client.Client) error {
	read, list := v.manager.GetAPIReader(), &corev1.ConfigMapList{}
	if err := read.List(ctx, list, client.InNamespace(v.namespace), client.MatchingLabels{"verbs": "yes"}, client.Limit(5)); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("by label: %d, want 1", len(list.Items))
	}
	if err := read.List(ctx, list, client.InNamespace(v.namespace), client.MatchingFields{"metadata.name": "none"}); err != nil {
		return err
	}
	if len(list.Items) != 0 {
		return fmt.Errorf("by field: %d, want none", len(list.Items))
	}
	return nil
}

func (v *verbs) update(ctx context.Context, c client.Client) error {
	read, now := v.manager.GetAPIReader(), v.configMap()
	if err := read.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		return err
	}
	old := now.DeepCopy()
	now.Data = map[string]string{"by": "update"}
	if err := c.Update(ctx, now); err != nil {
		return err
	}
	old.Data = map[string]string{"by": "nobody"}
	if err := c.Update(ctx, old); !apierrors.IsConflict(err) {
		return fmt.Errorf("of an old version: %v", err)
	}
	return nil
}

func (v *verbs) patchMerge(ctx context.Context, c client.Client) error {
	o := v.configMap()
	changed := o.DeepCopy()
	changed.Data = map[string]string{"merge": "yes"}
	if err := c.Patch(ctx, changed, client.MergeFrom(o)); err != nil {
		return err
	}
	return want(changed.Data["by"]+" "+changed.Data["merge"], "update yes")
}

func (v *verbs) patchJSON(ctx context.Context, c client.Client) error {
	o := v.configMap()
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/data/merge","value":"yes"},{"op":"replace","path":"/data/merge","value":"no"}]`))
	if err := c.Patch(ctx, o, patch); err != nil {
		return err
	}
	return want(o.Data["merge"], "no")
}

// patchStrategic changes one container by name and leaves the other one unchanged.
func (v *verbs) patchStrategic(ctx context.Context, c client.Client) error {
	o := v.deployment()
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"two","image":"changed"}]}}}}`)
	if err := c.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	images := map[string]string{}
	for _, container := range o.Spec.Template.Spec.Containers {
		images[container.Name] = container.Image
	}
	return want(fmt.Sprint(images), "map[one:one two:changed]")
}

func (v *verbs) apply(ctx context.Context, c client.Client) error {
	mine := corev1ac.ConfigMap("verbs", v.namespace).WithData(map[string]string{"merge": "applied"})
	if err := c.Apply(ctx, mine, client.FieldOwner("verbs")); !apierrors.IsConflict(err) {
		return fmt.Errorf("of a field of somebody else: %v", err)
	}
	if err := c.Apply(ctx, mine, client.FieldOwner("verbs"), client.ForceOwnership); err != nil {
		return err
	}
	return want(mine.Data["merge"]+" "+mine.Data["by"], "applied update")
}

func (v *verbs) applyUnstructured(ctx context.Context, c client.Client) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": "applied"}}}
	u.SetGroupVersionKind(gadgets.WithKind("Gadget"))
	u.SetNamespace(v.namespace)
	u.SetName("applied")
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("verbs"))
}

// status changes only the status, through the subresource.
func (v *verbs) status(ctx context.Context, c client.Client) error {
	o := v.deployment()
	if err := v.manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	o.Status.Replicas, o.Spec.Paused = 1, true
	if err := c.Status().Update(ctx, o); err != nil {
		return err
	}
	if err := want(fmt.Sprint(o.Status.Replicas, o.Spec.Paused), "1 false"); err != nil {
		return err
	}
	return c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"readyReplicas":1}}`)))
}

func (v *verbs) scale(ctx context.Context, c client.Client) error {
	o, scale := v.deployment(), &autoscalingv1.Scale{}
	if err := c.SubResource("scale").Get(ctx, o, scale); err != nil {
		return err
	}
	scale.Spec.Replicas = 4
	if err := c.SubResource("scale").Update(ctx, o, client.WithSubResourceBody(scale)); err != nil {
		return err
	}
	if err := v.manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	return want(fmt.Sprint(*o.Spec.Replicas), "4")
}

func (v *verbs) token(ctx context.Context, c client.Client) error {
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: v.meta("verbs")}, request); err != nil {
		return err
	}
	if request.Status.Token == "" {
		return errors.New("no token")
	}
	return nil
}

func (v *verbs) bindAndEvict(ctx context.Context, c client.Client) error {
	pod := &corev1.Pod{ObjectMeta: v.meta("verbs")}
	if err := c.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}); err != nil {
		return err
	}
	now := metav1.NewDeleteOptions(0)
	return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{DeleteOptions: now})
}

func (v *verbs) dryRun(ctx context.Context, c client.Client) error {
	o := v.configMap()
	o.Name = "never"
	if err := c.Create(ctx, o, client.DryRunAll); err != nil {
		return err
	}
	if err := v.manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		return fmt.Errorf("was made: %v", err)
	}
	return nil
}

func (v *verbs) remove(ctx context.Context, c client.Client) error {
	o := v.configMap()
	if err := c.Delete(ctx, o, client.Preconditions{UID: new(types.UID("another"))}); !apierrors.IsConflict(err) {
		return fmt.Errorf("of another uid: %v", err)
	}
	return c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

func (v *verbs) removeAll(ctx context.Context, c client.Client) error {
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}} {
		if err := c.DeleteAllOf(ctx, o, client.InNamespace(v.namespace), client.MatchingLabels{"verbs": "yes"}); err != nil {
			return fmt.Errorf("%T: %w", o, err)
		}
	}
	left := &appsv1.DeploymentList{}
	if err := v.manager.GetAPIReader().List(ctx, left, client.InNamespace(v.namespace), client.MatchingLabels{"verbs": "yes"}); err != nil {
		return err
	}
	return want(fmt.Sprint(len(left.Items)), "0")
}

func want(got, want string) error {
	if got != want {
		encoded, _ := json.Marshal(got)
		return fmt.Errorf("got %s, want %q", encoded, want)
	}
	return nil
}
