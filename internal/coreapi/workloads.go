package coreapi

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/coreapi/validate"
)

// addWorkloadDoors opens what follows from the kinds that make pods and is in no entry of the table: scales, parts of
// pods, evictions, and autoscalers under their other version.
func (s *storages) addWorkloadDoors(c *codecs, byResource map[schema.GroupResource]*stored) {
	for name, as := range scalables() {
		for _, g := range s.groups {
			if g.version.Group == name.Group {
				g.storage[name.Resource+"/scale"] = newScales(byResource[name], as)
			}
		}
	}
	core := s.of(corev1.SchemeGroupVersion)
	pods, budgets := byResource[corev1.Resource("pods")], byResource[policyv1.Resource("poddisruptionbudgets")]
	for path, storage := range podDoors(c, pods, budgets) {
		core[path] = storage
	}
	orphaned := byResource[batchv1.Resource("jobs")]
	s.of(batchv1.SchemeGroupVersion)["jobs"] = jobs{orphaned}
	newest, oldest := s.of(autoscalingv2.SchemeGroupVersion), s.of(autoscalingv1.SchemeGroupVersion)
	for path, storage := range newest {
		oldest[path] = storage
	}
}

// orphaning keeps what belongs to a deleted object unless its deletion says otherwise: clients of the first workload
// kinds, from before garbage collection, delete pods themselves.
type orphaning struct{ strategy }

func keepDependents(s strategy) rest.RESTDeleteStrategy { return orphaning{s} }

func (orphaning) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.OrphanDependents
}

// jobs tells whoever deletes one without a policy that its pods stay.
type jobs struct{ *stored }

func (j jobs) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfOrphans(ctx, options)
	return j.stored.Delete(ctx, name, validate, options)
}

func (j jobs) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	warnOfOrphans(ctx, options)
	return j.stored.DeleteCollection(ctx, validate, options, list)
}

func warnOfOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	//lint:ignore SA1019 clients may still say it the old way
	if options != nil && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "+
			"remove them or set propagationPolicy=Orphan to suppress this warning")
	}
}

// sameDeployment counts annotations too: the controller copies them to its ReplicaSets.
func sameDeployment(a, b runtime.Object) bool {
	x, y := a.(*appsv1.Deployment), b.(*appsv1.Deployment)
	return apiequality.Semantic.DeepEqual(x.Spec, y.Spec) && apiequality.Semantic.DeepEqual(x.Annotations, y.Annotations)
}

// keepDeploymentLabels leaves them to users: the controller writes its status with what it read.
func keepDeploymentLabels(obj, old runtime.Object) {
	obj.(*appsv1.Deployment).Labels = old.(*appsv1.Deployment).Labels
}

// The number of a DaemonSet's template is an annotation that only we write: it says which of the pods are older.

func numberTemplate(obj runtime.Object) {
	d := obj.(*appsv1.DaemonSet)
	setTemplateGeneration(d, max(1, validate.TemplateGeneration(d)))
}

func countTemplate(obj, old runtime.Object) {
	d, before := obj.(*appsv1.DaemonSet), old.(*appsv1.DaemonSet)
	n := validate.TemplateGeneration(before)
	if !apiequality.Semantic.DeepEqual(d.Spec.Template, before.Spec.Template) {
		n++
	}
	setTemplateGeneration(d, n)
}

func keepTemplateNumber(obj, old runtime.Object) {
	setTemplateGeneration(obj.(*appsv1.DaemonSet), validate.TemplateGeneration(old.(*appsv1.DaemonSet)))
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

// selectOwnPods labels a job's pods with the job's UID and selects them by it, so that no two jobs share pods. What the
// author set differently stays, and validation refuses it.
func selectOwnPods(obj runtime.Object) {
	job := obj.(*batchv1.Job)
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	unlessSaid := func(labels map[string]string, key, value string) {
		if _, said := labels[key]; !said {
			labels[key] = value
		}
	}
	for key, value := range map[string]string{
		"job-name": job.Name, batchv1.JobNameLabel: job.Name,
		"controller-uid": string(job.UID), batchv1.ControllerUidLabel: string(job.UID),
	} {
		unlessSaid(job.Spec.Template.Labels, key, value)
	}
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	unlessSaid(job.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(job.UID))
}

// Updates of an autoscaler through either version leave no annotations of the other.
func dropAutoscalerAnnotationsAgain(obj, _ runtime.Object) { dropAutoscalerAnnotations(obj) }

// newGeneration is for kinds that warn again only of what a write changes.
func newGeneration(obj, old runtime.Object) bool { return generation(obj) != generation(old) }

func never(_, _ runtime.Object) bool { return false }
