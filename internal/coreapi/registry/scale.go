package registry

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/columns"
)

// Scale describes how the scale subresource reads and writes a kind. The subresource is an autoscaling/v1 Scale for every kind,
// so autoscalers need not know the kind.
type Scale struct {
	// read returns the wanted and the actual number of pods, and their label selector.
	read func(obj runtime.Object) (wanted *int32, there int32, selector labels.Selector, err error)
	// set sets the wanted number of pods.
	set func(obj runtime.Object, wanted int32)
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleREST serves <resource>/scale.
type scaleREST struct {
	main *REST
	rest.TableConvertor
}

var (
	_ rest.Patcher                  = (*scaleREST)(nil)
	_ rest.GroupVersionKindProvider = (*scaleREST)(nil)
)

func newScaleREST(main *REST) *scaleREST {
	// The hooks of the main resource apply to complete objects.
	copied, store := *main, *main.Store
	store.BeginCreate, store.BeginUpdate = nil, nil
	copied.Store = &store
	return &scaleREST{&copied, columns.Convertor(columns.ScaleColumns(), time.Now)}
}

func (s *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy does nothing: the main resource owns the storage.
func (s *scaleREST) Destroy() {}

func (s *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return scaleKind }

func (s *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.main.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.scaleOf(obj)
}

// Update never creates an object.
func (s *scaleREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	admit := func(ctx context.Context, obj, old runtime.Object) error {
		next, err := s.scaleOf(obj)
		if err != nil {
			return err
		}
		before, err := s.scaleOf(old)
		if err != nil {
			return err
		}
		return update(ctx, next, before)
	}
	obj, _, err := s.main.Update(ctx, name, &scaledObject{s, name, info}, rest.ValidateAllObjectFunc, admit, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := s.scaleOf(obj)
	return scale, false, err
}

func (s *scaleREST) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	wanted, there, selector, err := s.main.Resource.Scale.read(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m := obj.(metav1.Object)
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(),
			ResourceVersion: m.GetResourceVersion(), CreationTimestamp: m.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: there, Selector: selector.String()},
	}
	if wanted != nil {
		scale.Spec.Replicas = *wanted
	}
	return scale, nil
}

// validateScale validates a requested scale. Its other metadata is not stored.
func validateScale(s *autoscalingv1.Scale) field.ErrorList {
	errs := metav1validation.ValidateManagedFields(s.ManagedFields, field.NewPath("metadata", "managedFields"))
	return append(errs, validation.ValidateNonnegativeField(int64(s.Spec.Replicas), field.NewPath("spec", "replicas"))...)
}

// scaledObject converts the update of a scale to an update of the object.
type scaledObject struct {
	scales *scaleREST
	name   string
	info   rest.UpdatedObjectInfo
}

func (o *scaledObject) Preconditions() *metav1.Preconditions { return o.info.Preconditions() }

func (o *scaledObject) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	resource := schema.GroupResource{Group: o.scales.main.DefaultQualifiedResource.Group, Resource: o.scales.main.Resource.Name + "/scale"}
	obj := old.DeepCopyObject()
	m := obj.(metav1.Object)
	if m.GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(resource, o.name)
	}
	before, err := o.scales.scaleOf(obj)
	if err != nil {
		return nil, err
	}
	// The owners of spec.replicas of the object are the owners of spec.replicas of the scale, and vice versa.
	kinds, _, err := o.scales.main.CreateStrategy.ObjectKinds(obj)
	if err != nil {
		return nil, err
	}
	version := externalOf(kinds)
	owners := managedfields.NewScaleHandler(m.GetManagedFields(), version,
		managedfields.ResourcePathMappings{version.String(): fieldpath.MakePathOrDie("spec", "replicas")})
	if before.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := o.info.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	next, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected input object type to be Scale, but %T", updated))
	}
	if errs := validateScale(next); len(errs) > 0 {
		return nil, apierrors.NewInvalid(scaleKind.GroupKind(), m.GetName(), errs)
	}
	if next.UID != "" && next.UID != m.GetUID() {
		//lint:ignore ST1005 kube-apiserver's words
		return nil, apierrors.NewConflict(resource, m.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", next.UID, m.GetUID()))
	}
	o.scales.main.Resource.Scale.set(obj, next.Spec.Replicas)
	m.SetResourceVersion(next.ResourceVersion)
	entries, err := owners.ToParent(next.ManagedFields)
	if err != nil {
		return nil, err
	}
	m.SetManagedFields(entries)
	return obj, nil
}

// externalOf returns the external version of a Go type that is also registered for an internal version.
func externalOf(kinds []schema.GroupVersionKind) schema.GroupVersion {
	for _, kind := range kinds {
		if kind.Version != runtime.APIVersionInternal {
			return kind.GroupVersion()
		}
	}
	return schema.GroupVersion{}
}

// ScaleOf returns the Scale of a kind. parts returns its three parts.
func ScaleOf[T runtime.Object](parts func(T) (wanted **int32, there int32, selector *metav1.LabelSelector)) *Scale {
	return &Scale{
		read: func(obj runtime.Object) (*int32, int32, labels.Selector, error) {
			wanted, there, selector := parts(obj.(T))
			parsed, err := metav1.LabelSelectorAsSelector(selector)
			return *wanted, there, parsed, err
		},
		set: func(obj runtime.Object, n int32) {
			wanted, _, _ := parts(obj.(T))
			*wanted = &n
		},
	}
}
