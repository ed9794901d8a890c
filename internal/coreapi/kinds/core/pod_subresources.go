package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// podPart is a subresource of pods that writes a few fields of the spec.
type podPart struct {
	sub    *registry.Subresource
	filter fieldpath.Filter // the fields that an applier may own through it
	rest.TableConvertor
}

var (
	_ rest.Patcher                   = (*podPart)(nil)
	_ rest.ResetFieldsFilterStrategy = (*podPart)(nil)
)

func (p *podPart) New() runtime.Object { return p.sub.New() }

func (p *podPart) Destroy() {}

func (p *podPart) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return p.sub.Get(ctx, name, options)
}

func (p *podPart) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return p.sub.Update(ctx, name, info, create, update, force, options)
}

func (p *podPart) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return map[fieldpath.APIVersion]fieldpath.Filter{"v1": p.filter}
}

// debuggerStrategy adds ephemeral containers and changes nothing else.
type debuggerStrategy struct{ registry.Strategy }

func (s debuggerStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	added := pod.Spec.EphemeralContainers
	pod.Spec, pod.Status = before.Spec, before.Status
	metav1.ResetObjectMetaForStatus(&pod.ObjectMeta, &before.ObjectMeta)
	pod.Spec.EphemeralContainers = added
	s.DropAlphaFields(pod, before)
	countPodGeneration(pod, before)
}

func (s debuggerStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return append(validateEphemeralContainers(obj.(*corev1.Pod), old.(*corev1.Pod)), s.Privileged(obj)...)
}

// resizeStrategy changes the resources of the containers of a pod.
type resizeStrategy struct{ registry.Strategy }

// PrepareForUpdate does not merge containers that were added, removed or renamed; validation refuses them.
func (s resizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	if len(pod.Spec.Containers) != len(before.Spec.Containers) || len(pod.Spec.InitContainers) != len(before.Spec.InitContainers) {
		return
	}
	spec := before.Spec
	spec.Containers = resized(pod.Spec.Containers, before.Spec.Containers)
	spec.InitContainers = resized(pod.Spec.InitContainers, before.Spec.InitContainers)
	if pod.Spec.Resources != nil { // clients that are older than the field omit it
		spec.Resources = pod.Spec.Resources
	}
	pod.Spec, pod.Status = spec, before.Status
	metav1.ResetObjectMetaForStatus(&pod.ObjectMeta, &before.ObjectMeta)
	if pod.Spec.Resources != nil {
		pod.Spec.Resources = pod.Spec.Resources.DeepCopy()
		PodResources(pod)
	}
	countPodGeneration(pod, before)
}

func resized(next, old []corev1.Container) []corev1.Container {
	merged := slices.Clone(old)
	for i := range next {
		if next[i].Name != old[i].Name {
			return next
		}
		merged[i].Resources, merged[i].ResizePolicy = next[i].Resources, next[i].ResizePolicy
	}
	return merged
}

func (s resizeStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateResize(obj.(*corev1.Pod), old.(*corev1.Pod))
}

func countPodGeneration(pod, old *corev1.Pod) {
	if !apiequality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		pod.Generation = old.Generation + 1
	}
}

// podStorages returns the subresources of pods. The ones that need a kubelet are in connect.go.
func podStorages(e *registry.Environment, pods *registry.REST) map[string]rest.Storage {
	part := func(strategy interface {
		rest.RESTUpdateStrategy
		rest.ResetFieldsStrategy
	}, paths ...*fieldpath.SetMatcher) *podPart {
		return &podPart{pods.Subresource(strategy), fieldpath.NewIncludeMatcherFilter(paths...), pods.Store}
	}
	storages := map[string]rest.Storage{
		"pods/ephemeralcontainers": part(debuggerStrategy{pods.Strategy}, fieldpath.MakePrefixMatcherOrDie("spec", "ephemeralContainers")),
		"pods/resize": part(resizeStrategy{pods.Strategy},
			fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resources"),
			fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resizePolicy"),
			fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resources"),
			fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resizePolicy")),
		"pods/binding": &bindings{pods},
	}
	maps.Copy(storages, podConnections(e))
	// Eviction requires PodDisruptionBudgets, because only they can protect a pod.
	if budgets := e.Storage(policyv1.Resource("poddisruptionbudgets")); budgets != nil {
		storages["pods/eviction"] = &evictions{pods: pods, podStatus: pods.Status(), budgets: budgets, budgetStatus: budgets.Status()}
	}
	return storages
}

func newLegacyBindings(e *registry.Environment) rest.Storage {
	return &legacyBindings{&bindings{e.Storage(corev1.Resource("pods"))}}
}

// bindings serves pods/binding, through which a scheduler assigns a pod to a node, once.
type bindings struct{ pods *registry.REST }

var (
	_ rest.NamedCreater                   = (*bindings)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*bindings)(nil)
	_ rest.Creater                        = (*legacyBindings)(nil)
	_ rest.Scoper                         = (*legacyBindings)(nil)
	_ rest.SingularNameProvider           = (*legacyBindings)(nil)
)

func (b *bindings) New() runtime.Object { return &corev1.Binding{} }

func (b *bindings) Destroy() {}

func (b *bindings) NamespaceScoped() bool { return true }

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the uid and resourceVersion of the request, which identify the
// pod.
func (b *bindings) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (b *bindings) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding := obj.(*corev1.Binding)
	if binding.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	if admit != nil {
		if err := admit(ctx, binding.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := b.assign(ctx, binding, len(options.DryRun) > 0); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// assign bypasses the pod's strategies, which do not let users change the node of a pod.
func (b *bindings) assign(ctx context.Context, binding *corev1.Binding, dryRun bool) error {
	key, err := b.pods.KeyFunc(ctx, binding.Name)
	if err != nil {
		return err
	}
	var which *storage.Preconditions
	if binding.UID != "" || binding.ResourceVersion != "" {
		which = &storage.Preconditions{}
		if binding.UID != "" {
			which.UID = &binding.UID
		}
		if binding.ResourceVersion != "" {
			which.ResourceVersion = &binding.ResourceVersion
		}
	}
	err = b.pods.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, which, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		return place(obj.(*corev1.Pod), binding)
	}), dryRun, nil)
	if err == nil {
		return nil
	}
	pods := corev1.Resource("pods")
	err = storeerr.InterpretUpdateError(storeerr.InterpretGetError(err, pods, binding.Name), pods, binding.Name)
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), binding.Name, err)
	}
	return err
}

func place(pod *corev1.Pod, binding *corev1.Binding) (runtime.Object, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return nil, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return nil, fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return nil, fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, binding.Annotations)
	if len(binding.Labels) > 0 && pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, binding.Labels)
	SetPodCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return pod, nil
}

// legacyBindings serves the same requests below /bindings, where the body contains the pod's name.
type legacyBindings struct{ pods *bindings }

func (b *legacyBindings) New() runtime.Object { return b.pods.New() }

func (b *legacyBindings) Destroy() {}

func (b *legacyBindings) NamespaceScoped() bool { return true }

func (b *legacyBindings) GetSingularName() string { return "binding" }

func (b *legacyBindings) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return b.pods.Create(ctx, obj.(*corev1.Binding).Name, obj, admit, options)
}

// validateEphemeralContainers validates containers that are added to a running pod for debugging.
func validateEphemeralContainers(p, old *corev1.Pod) field.ErrorList {
	if _, static := old.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := append(validate.MetaUpdate(p, old), validate.Pod(p)...)
	errs = append(errs, validate.PodAnnotationsUpdate(p, old, field.NewPath("metadata", "annotations"))...)
	path := field.NewPath("spec", "ephemeralContainers")
	for _, before := range old.Spec.EphemeralContainers {
		i := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == before.Name })
		switch {
		case i < 0:
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be removed\n"))
		case !apiequality.Semantic.DeepEqual(before, p.Spec.EphemeralContainers[i]):
			errs = append(errs, field.Forbidden(path, "existing ephemeral containers \""+before.Name+"\" may not be changed\n"+
				diff.Diff(before, p.Spec.EphemeralContainers[i])))
		}
	}
	return errs
}

// validateBinding validates the assignment of a pod to a node.
func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	target := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	switch {
	case b.Target.Name == "":
		errs = append(errs, field.Required(target.Child("name"), ""))
	case len(errs) == 0:
		errs = append(errs, validate.DnsSubdomain(b.Target.Name, target.Child("name"))...)
	}
	return errs
}
