package coreapi

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/autoscaling"
)

// parsed decodes a manifest into a new object.
func parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

const webTemplate = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}"

func webDeployment(t *testing.T, name string) *appsv1.Deployment {
	return parsed[appsv1.Deployment](t, "metadata: {name: "+name+"}\nspec: {replicas: 2, selector: {matchLabels: {app: web}}, template: "+webTemplate+"}")
}

func startWork(t *testing.T) (*testServer, kubernetes.Interface, context.Context) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "work")
	return h, client, within(t)
}

func mustBe(t *testing.T, err error, is func(error) bool, says string) {
	t.Helper()
	if err == nil || !is(err) || !strings.Contains(err.Error(), says) {
		t.Fatalf("error = %v, want one of the expected type that contains %q", err, says)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWorkloads(t *testing.T) {
	_, client, ctx := startWork(t)
	t.Run("a generation of a deployment counts annotations, its status keeps labels", func(t *testing.T) {
		deployments := client.AppsV1().Deployments("work")
		d, err := deployments.Create(ctx, webDeployment(t, "generations"), metav1.CreateOptions{})
		ok(t, err)
		d.Annotations = map[string]string{"a": "b"}
		d, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
		ok(t, err)
		if d.Generation != 2 {
			t.Errorf("generation after an annotation = %d, want 2", d.Generation)
		}
		d.Labels, d.Spec.Replicas, d.Status.Replicas = map[string]string{"from": "status"}, ptr.To[int32](9), 2
		d, err = deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		ok(t, err)
		if d.Labels != nil || *d.Spec.Replicas != 2 || d.Status.Replicas != 2 || d.Generation != 2 {
			t.Errorf("after a status update: %+v, want no labels, 2 replicas, 2 status replicas and generation 2", d)
		}
		d.Spec.Selector.MatchLabels["app"] = "other"
		d.Spec.Template.Labels["app"] = "other"
		_, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
		mustBe(t, err, apierrors.IsInvalid, "field is immutable")
	})
	t.Run("the template of a daemon set is numbered, whatever its author says", func(t *testing.T) {
		sets := client.AppsV1().DaemonSets("work")
		d, err := sets.Create(ctx, parsed[appsv1.DaemonSet](t, "metadata: {name: agent}\nspec: {selector: {matchLabels: {app: web}}, template: "+webTemplate+"}"), metav1.CreateOptions{})
		ok(t, err)
		number := func() string { return d.Annotations[appsv1.DeprecatedTemplateGeneration] }
		if number() != "1" {
			t.Errorf("template generation after the create = %q, want 1", number())
		}
		d.Spec.Template.Spec.Containers[0].Image = "j"
		d.Annotations[appsv1.DeprecatedTemplateGeneration] = "7"
		d, err = sets.Update(ctx, d, metav1.UpdateOptions{})
		ok(t, err)
		if number() != "2" || d.Generation != 2 {
			t.Errorf("template generation after a new image = %q, generation %d, want 2 and 2", number(), d.Generation)
		}
		delete(d.Annotations, appsv1.DeprecatedTemplateGeneration)
		d, err = sets.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		ok(t, err)
		if number() != "2" {
			t.Errorf("template generation after a status update = %q, want 2", number())
		}
	})
	t.Run("a job selects its own pods, and leaves them when it is deleted", func(t *testing.T) {
		jobs := client.BatchV1().Jobs("work")
		const text = "metadata: {name: once}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
		j, err := jobs.Create(ctx, parsed[batchv1.Job](t, text), metav1.CreateOptions{})
		ok(t, err)
		if j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] != string(j.UID) || j.Spec.Template.Labels["job-name"] != "once" ||
			j.Spec.Template.Labels["controller-uid"] != string(j.UID) || j.Labels[batchv1.JobNameLabel] != "once" {
			t.Errorf("created job = %+v, want its UID in the selector and the template, and the label job-name", j)
		}
		wrong := parsed[batchv1.Job](t, strings.Replace(text, "once", "wrong", 1))
		wrong.Spec.Template.Labels = map[string]string{"controller-uid": "mine"}
		_, err = jobs.Create(ctx, wrong, metav1.CreateOptions{})
		mustBe(t, err, apierrors.IsInvalid, "spec.template.metadata.labels[controller-uid]")
		j.Status.Succeeded = 1
		_, err = jobs.UpdateStatus(ctx, j, metav1.UpdateOptions{})
		ok(t, err)
		list, err := jobs.List(ctx, metav1.ListOptions{FieldSelector: "status.successful=1"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("list by status.successful = %v, %v, want one job", list, err)
		}
		ok(t, jobs.Delete(ctx, "once", metav1.DeleteOptions{}))
		left, err := jobs.Get(ctx, "once", metav1.GetOptions{})
		if err != nil || !slices.Contains(left.Finalizers, metav1.FinalizerOrphanDependents) {
			t.Errorf("GET of the deleted job = %v, %v, want the finalizer orphan", left, err)
		}
	})
	t.Run("what every kind refuses", func(t *testing.T) {
		_, err := client.AppsV1().Deployments("work").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, metav1.CreateOptions{})
		mustBe(t, err, apierrors.IsInvalid, "spec.selector: Required value")
		_, err = client.BatchV1().CronJobs("work").Create(ctx, parsed[batchv1.CronJob](t, "metadata: {name: often}\nspec: {schedule: '60 * * * *', "+
			"jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}"), metav1.CreateOptions{})
		mustBe(t, err, apierrors.IsInvalid, "end of range (60) above maximum (59): 60")
	})
}

func TestScales(t *testing.T) {
	_, client, ctx := startWork(t)
	deployments := client.AppsV1().Deployments("work")
	_, err := deployments.Create(ctx, webDeployment(t, "web"), metav1.CreateOptions{FieldManager: "author"})
	ok(t, err)
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if scale.Spec.Replicas != 2 || scale.Status.Selector != "app=web" || scale.Kind != "Scale" && scale.Kind != "" {
		t.Fatalf("scale = %+v, want 2 replicas and the selector app=web", scale)
	}
	stale := scale.DeepCopy()
	scale.Spec.Replicas = 5
	scale, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{FieldManager: "scaler"})
	ok(t, err)
	d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if scale.Spec.Replicas != 5 || *d.Spec.Replicas != 5 || d.Generation != 2 {
		t.Fatalf("after the update of the scale: %+v, deployment %+v, want 5 replicas and generation 2", scale, d.Spec)
	}
	owner := func(manager string) string {
		for _, m := range d.ManagedFields {
			if m.Manager == manager && strings.Contains(m.FieldsV1.GetRawString(), "f:replicas") {
				return m.Subresource + " " + m.APIVersion
			}
		}
		return ""
	}
	if owner("scaler") != "scale apps/v1" || owner("author") != "" {
		t.Errorf("managed fields = %v, want spec.replicas owned by scaler through the scale and not by author", d.ManagedFields)
	}
	stale.Spec.Replicas = 1
	_, err = deployments.UpdateScale(ctx, "web", stale, metav1.UpdateOptions{})
	mustBe(t, err, apierrors.IsConflict, "the object has been modified")
	scale.Spec.Replicas = -1
	_, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	mustBe(t, err, apierrors.IsInvalid, "spec.replicas: Invalid value: -1")
	patch := []byte(`{"spec":{"replicas":3}}`)
	_, err = deployments.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	ok(t, err)
	_, err = deployments.Patch(ctx, "none", types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	mustBe(t, err, apierrors.IsNotFound, "")
	// An apply without replicas leaves them to the autoscaler.
	applied, err := json.Marshal(map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "web", "namespace": "work"}, "spec": map[string]any{"replicas": 4}})
	ok(t, err)
	_, err = deployments.Patch(ctx, "web", types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "applier", Force: ptr.To(true)}, "scale")
	ok(t, err)
	if d, err = deployments.Get(ctx, "web", metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 4 || owner("applier") != "scale apps/v1" {
		t.Errorf("after an apply of the scale: %v, %v, want 4 replicas owned by applier through the scale", d, err)
	}
}

func TestEvictions(t *testing.T) {
	_, client, ctx := startWork(t)
	pods, budgets := client.CoreV1().Pods("work"), client.PolicyV1().PodDisruptionBudgets("work")
	run := func(name string, phase corev1.PodPhase) {
		t.Helper()
		pod, err := pods.Create(ctx, parsed[corev1.Pod](t, "metadata: {name: "+name+", labels: {app: web}}\nspec: {containers: [{name: c, image: i}]}"), metav1.CreateOptions{})
		ok(t, err)
		pod.Status.Phase = phase
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		ok(t, err)
	}
	evict := func(name string, dryRun ...string) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}})
	}
	run("free", corev1.PodRunning)
	ok(t, evict("free"))
	b, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}, metav1.CreateOptions{})
	ok(t, err)
	run("a", corev1.PodRunning)
	run("b", corev1.PodRunning)
	run("pending", corev1.PodPending)
	ok(t, evict("pending"))
	// A budget without a status makes the client wait for the Retry-After, which is longer than the test.
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 2}
	b, err = budgets.UpdateStatus(ctx, b, metav1.UpdateOptions{})
	ok(t, err)
	mustBe(t, evict("a"), apierrors.IsTooManyRequests, "violate")
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2}
	_, err = budgets.UpdateStatus(ctx, b, metav1.UpdateOptions{})
	ok(t, err)
	ok(t, evict("a", "All"))
	if b, err = budgets.Get(ctx, "web", metav1.GetOptions{}); err != nil || b.Status.DisruptionsAllowed != 1 {
		t.Fatalf("budget after a dry run = %v, %v, want 1 allowed disruption", b, err)
	}
	ok(t, evict("a"))
	if _, err := pods.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("GET of the evicted pod: error = %v, want NotFound", err)
	}
	b, err = budgets.Get(ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if _, noted := b.Status.DisruptedPods["a"]; b.Status.DisruptionsAllowed != 0 || !noted {
		t.Errorf("status of the budget after the eviction = %+v, want 0 allowed disruptions and the pod a in disruptedPods", b.Status)
	}
	err = evict("b")
	mustBe(t, err, apierrors.IsTooManyRequests, "")
	if status := apierrors.APIStatus(nil); !apierrorsAs(err, &status) || status.Status().Details.Causes[0].Type != policyv1.DisruptionBudgetCause {
		t.Errorf("eviction over the budget: error = %+v, want the cause DisruptionBudget", err)
	}
	mustBe(t, evict("none"), apierrors.IsNotFound, "")
}

func apierrorsAs(err error, status *apierrors.APIStatus) bool {
	s, is := err.(apierrors.APIStatus)
	*status = s
	return is && len(s.Status().Details.Causes) > 0
}

func TestPodSubresourcesChangeTheirFields(t *testing.T) {
	h, client, ctx := startWork(t)
	pods := client.CoreV1().Pods("work")
	pod, err := pods.Create(ctx, parsed[corev1.Pod](t, "metadata: {name: p}\nspec: {schedulingGates: [{name: g}], containers: [{name: c, image: i, "+
		"resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}"), metav1.CreateOptions{})
	ok(t, err)
	if pod.Status.QOSClass != corev1.PodQOSBurstable || pod.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("status of the created pod = %+v, want Burstable and SchedulingGated", pod.Status)
	}
	bind := func(node string) error {
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: pod.UID, Annotations: map[string]string{"by": "test"}},
			Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	}
	mustBe(t, bind("n1"), apierrors.IsConflict, "non-empty .spec.schedulingGates")
	mustBe(t, bind(""), apierrors.IsInvalid, "target.name: Required value")
	pod.Spec.SchedulingGates = nil
	_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
	ok(t, err)
	ok(t, bind("n1"))
	mustBe(t, bind("n2"), apierrors.IsConflict, `already assigned to node "n1"`)
	if pod, err = pods.Get(ctx, "p", metav1.GetOptions{}); err != nil || pod.Spec.NodeName != "n1" || pod.Annotations["by"] != "test" {
		t.Fatalf("bound pod = %v, %v, want the node n1 and the annotation by=test", pod, err)
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "sh"}}}
	pod.Spec.NodeName = "n3" // ignored by this subresource
	pod, err = pods.UpdateEphemeralContainers(ctx, "p", pod, metav1.UpdateOptions{})
	ok(t, err)
	if len(pod.Spec.EphemeralContainers) != 1 || pod.Spec.NodeName != "n1" {
		t.Errorf("spec after an update of the ephemeral containers = %+v, want one ephemeral container and the node n1", pod.Spec)
	}
	pod.Spec.EphemeralContainers[0].Image = "other"
	_, err = pods.UpdateEphemeralContainers(ctx, "p", pod, metav1.UpdateOptions{})
	mustBe(t, err, apierrors.IsInvalid, "may not be changed")
	before := pod.Generation
	pod, err = pods.Patch(ctx, "p", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1500m"}}}]}}`), metav1.PatchOptions{}, "resize")
	ok(t, err)
	if pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "1500m" || pod.Generation != before+1 {
		t.Errorf("resources after the resize = %+v (generation %d), want a cpu request of 1500m and generation %d", pod.Spec.Containers[0].Resources, pod.Generation, before+1)
	}
	_, err = pods.Patch(ctx, "p", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"},"limits":{"memory":"1Gi"}}}]}}`), metav1.PatchOptions{}, "resize")
	mustBe(t, err, apierrors.IsInvalid, "Pod QOS Class may not change")
	ok(t, client.CoreV1().RESTClient().Post().Namespace("work").Resource("bindings").Body(&corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: mustPod(t, h, "q")}, Target: corev1.ObjectReference{Name: "n1"},
	}).Do(ctx).Error())
}

func mustPod(t *testing.T, h *testServer, name string) string {
	t.Helper()
	_, err := h.typed(t, admin).CoreV1().Pods("work").Create(within(t), parsed[corev1.Pod](t, "metadata: {name: "+name+"}\nspec: {containers: [{name: c, image: i}]}"), metav1.CreateOptions{})
	ok(t, err)
	return name
}

func TestAutoscalerIsServedInBothVersions(t *testing.T) {
	h, client, ctx := startWork(t)
	newer, older := client.AutoscalingV2().HorizontalPodAutoscalers("work"), client.AutoscalingV1().HorizontalPodAutoscalers("work")
	_, err := newer.Create(ctx, parsed[autoscalingv2.HorizontalPodAutoscaler](t, "metadata: {name: web, annotations: {mine: kept}}\n"+
		"spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, behavior: {scaleDown: {stabilizationWindowSeconds: 60}}, "+
		"metrics: [{type: Pods, pods: {metric: {name: qps}, target: {type: AverageValue, averageValue: 10}}}, "+
		"{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]}"), metav1.CreateOptions{FieldManager: "newer"})
	ok(t, err)
	old, err := older.Get(ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if *old.Spec.TargetCPUUtilizationPercentage != 70 || old.Annotations["mine"] != "kept" ||
		!strings.Contains(old.Annotations[autoscaling.MetricsAnnotation], "qps") || !strings.Contains(old.Annotations[autoscaling.BehaviorAnnotation], `"StabilizationWindowSeconds":60`) {
		t.Fatalf("autoscaler in v1 = %+v, want the target 70, the annotation mine and the metrics and behavior annotations", old)
	}
	old.Spec.TargetCPUUtilizationPercentage = ptr.To[int32](50)
	_, err = older.Update(ctx, old, metav1.UpdateOptions{FieldManager: "older"})
	ok(t, err)
	now, err := newer.Get(ctx, "web", metav1.GetOptions{})
	ok(t, err)
	if len(now.Spec.Metrics) != 2 || now.Spec.Metrics[0].Pods.Metric.Name != "qps" || *now.Spec.Metrics[1].Resource.Target.AverageUtilization != 50 ||
		*now.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 60 || now.Annotations[autoscaling.MetricsAnnotation] != "" || now.Generation != 2 {
		t.Fatalf("autoscaler in v2 = %+v, want the metrics qps and cpu, the behavior and generation 2", now)
	}
	versions := map[string]string{}
	for _, m := range now.ManagedFields {
		versions[m.Manager] = m.APIVersion
	}
	if versions["newer"] != "autoscaling/v2" || versions["older"] != "autoscaling/v1" {
		t.Errorf("versions in the managed fields = %v, want autoscaling/v2 for newer and autoscaling/v1 for older", versions)
	}
	apply := []byte("apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: {maxReplicas: 7, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}")
	old, err = older.Patch(ctx, "web", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "applier", Force: ptr.To(true)})
	if err != nil || old.Spec.MaxReplicas != 7 || *old.Spec.TargetCPUUtilizationPercentage != 50 {
		t.Fatalf("apply in v1 = %+v, %v, want at most 7 replicas and the target 50", old, err)
	}
	made, err := older.Create(ctx, &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
		MaxReplicas: 3, ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}}, metav1.CreateOptions{})
	if err != nil || *made.Spec.TargetCPUUtilizationPercentage != 80 || *made.Spec.MinReplicas != 1 {
		t.Fatalf("create in v1 = %+v, %v, want the defaults 80 for the target and 1 for the replicas", made, err)
	}
	w, err := older.Watch(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion, TimeoutSeconds: ptr.To[int64](20)})
	ok(t, err)
	defer w.Stop()
	if e := <-w.ResultChan(); e.Object.(*autoscalingv1.HorizontalPodAutoscaler).Name != "old" {
		t.Errorf("first event = %+v, want the autoscaler old", e)
	}
	for _, g := range h.Discovery().Groups {
		if g.Name == "autoscaling" && (len(g.Versions) != 2 || g.Versions[0].Version != "v2" || g.Versions[1].Version != "v1") {
			t.Errorf("discovered versions of autoscaling = %+v, want v2 and v1", g.Versions)
		}
	}
	patched, err := older.Patch(ctx, "web", types.MergePatchType, []byte(`{"status":{"currentReplicas":2,"desiredReplicas":3}}`), metav1.PatchOptions{}, "status")
	if err != nil || patched.Status.DesiredReplicas != 3 || patched.Annotations[autoscaling.MetricsAnnotation] == "" {
		t.Fatalf("patch of the status in v1 = %+v, %v, want 3 desired replicas and the metrics annotation", patched, err)
	}
}
