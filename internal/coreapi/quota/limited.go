package quota

import (
	"io"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	limits "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	quota "k8s.io/apiserver/pkg/quota/v1"

	"portico.dev/internal/coreapi/validate"
)

// LimitedResources decodes a ResourceQuotaConfiguration and returns the resources that may be used only if a quota covers them.
func LimitedResources(config io.Reader) ([]limits.LimitedResource, error) {
	read, err := resourcequota.LoadConfiguration(config)
	if err != nil {
		return nil, err
	}
	errs := validation.ValidateConfiguration(read)
	errs = append(errs, validate.EachValue(read.LimitedResources, field.NewPath("limitedResources"), limitedResource)...)
	return read.LimitedResources, errs.ToAggregate()
}

// CheckConfiguration validates a ResourceQuotaConfiguration.
func CheckConfiguration(config io.Reader) error {
	_, err := LimitedResources(config)
	return err
}

// limitedResource refuses an entry without effect. k8s.io/apiserver accepts it silently: an expression that cannot be evaluated
// allows every request.
func limitedResource(l limits.LimitedResource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	r := schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}
	if uncounted(r) {
		errs = append(errs, field.Invalid(path.Child("resource"), r.String(), "is not counted by quotas"))
	}
	if len(l.MatchContains) == 0 && len(l.MatchScopes) == 0 {
		errs = append(errs, field.Required(path, "matchContains or matchScopes; without either nothing is limited"))
	}
	scopes := path.Child("matchScopes")
	if len(l.MatchScopes) > 0 && r != corev1.Resource("pods") && r != corev1.Resource("persistentvolumeclaims") {
		errs = append(errs, field.Invalid(scopes, r.String(), "only pods and persistentvolumeclaims have scopes"))
	}
	return append(errs, validate.Each(l.MatchScopes, scopes, validate.ScopeRequirement)...)
}

// covered returns an error if a request uses a limited resource and no quota covers it. It does not check whether the quotas
// have space left.
func (p *Admission) covered(quotas []*corev1.ResourceQuota, a admission.Attributes, e quota.Evaluator) error {
	// k8s.io/apiserver compares the scopes of all entries with the object, even those for other kinds.
	var ofKind []limits.LimitedResource
	for _, l := range p.limited {
		if l.APIGroup == a.GetResource().Group && l.Resource == a.GetResource().Resource {
			ofKind = append(ofKind, l)
		}
	}
	if len(ofKind) == 0 {
		return nil
	}
	unlimited := make([]corev1.ResourceQuota, 0, len(quotas))
	for _, q := range quotas {
		q = q.DeepCopy()
		q.Status.Used = corev1.ResourceList{}
		for name := range q.Status.Hard {
			q.Status.Used[name] = resource.Quantity{}
			q.Status.Hard[name] = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
		}
		unlimited = append(unlimited, *q)
	}
	_, err := resourcequota.CheckRequest(unlimited, a, e, ofKind)
	return err
}
