package resource

import (
	"context"
	"reflect"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func resourceClaimTemplateResource() registry.Resource {
	return registry.Resource{
		Name: "resourceclaimtemplates", Singular: "resourceclaimtemplate",
		Object: &resourcev1.ResourceClaimTemplate{}, List: &resourcev1.ResourceClaimTemplateList{},
		AllowUnconditionalUpdate: true, ReturnDeletedObject: true,
		Samples: []string{
			"metadata: {name: gpu, namespace: ns}\n" +
				"spec: {metadata: {labels: {a: b}}, spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpus, allocationMode: ExactCount, count: 1}}]}}}",
		},
		Rules: rulesOf(Validate_ResourceClaimTemplate, handwritten[*resourcev1.ResourceClaimTemplate]{
			create: createResourceClaimTemplate, update: updateResourceClaimTemplate,
		}),
		Defaults: defaults.Of(func(t *resourcev1.ResourceClaimTemplate) { defaultDevices(&t.Spec.Spec.Devices) }),
		Columns:  nameAndAge[*resourcev1.ResourceClaimTemplate],
		Spec:     registry.SpecOf(func(t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaimTemplateSpec { return &t.Spec }),
		PrepareCreate: func(obj runtime.Object) {
			dropDisabledOfSpec(&obj.(*resourcev1.ResourceClaimTemplate).Spec.Spec, nil)
		},
		PrepareUpdate: func(obj, old runtime.Object) {
			dropDisabledOfSpec(&obj.(*resourcev1.ResourceClaimTemplate).Spec.Spec, &old.(*resourcev1.ResourceClaimTemplate).Spec.Spec)
		},
		CheckCreate: func(ctx context.Context, e *registry.Environment, obj runtime.Object) field.ErrorList {
			t := obj.(*resourcev1.ResourceClaimTemplate)
			return mayAdminister(ctx, e, t.Namespace, adminRequest(t.Spec.Spec.Devices.Requests))
		},
	}
}

func createResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := validate.ObjectMeta(&t.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, templateMeta(&t.Spec.ObjectMeta, spec.Child("metadata"))...)
	return append(errs, devices(&t.Spec.Spec.Devices, spec.Child("spec", "devices"))...)
}

// updateResourceClaimTemplate validates the complete template again although it is immutable, as upstream does.
func updateResourceClaimTemplate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	return append(createResourceClaimTemplate(t), validate.Immutable(t.Spec, old.Spec, field.NewPath("spec"))...)
}

// templateMeta checks the metadata that claims get from their template: only labels and annotations are allowed.
func templateMeta(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := validation.ValidateAnnotations(m.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	value := reflect.ValueOf(*m)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !value.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set"))
		}
	}
	return errs
}
