package validate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func ValidateAPIService(a *apiregistrationv1.APIService) field.ErrorList {
	errs := plainMeta(&a.ObjectMeta, clusterScoped, func(name string, _ bool) []string {
		if messages := content.IsPathSegmentName(name); len(messages) > 0 {
			return messages
		}
		if wanted := a.Spec.Version + "." + a.Spec.Group; name != wanted {
			return []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", wanted)}
		}
		return nil
	})
	spec := field.NewPath("spec")
	errs = append(errs, apiGroup(&a.Spec, spec.Child("group"))...)
	errs = append(errs, invalid(spec.Child("version"), a.Spec.Version, utilvalidation.IsDNS1035Label(a.Spec.Version))...)
	// Both texts say "less than" and both bounds are allowed: kube-aggregator's words and kube-aggregator's rule.
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if a.Spec.Service == nil {
		return append(errs, localAPIService(&a.Spec, spec)...)
	}
	return append(errs, remoteAPIService(&a.Spec, spec)...)
}

// ValidateAPIServiceUpdate repeats everything: nothing but the name is immutable, and an API may move between the front door
// and an extension server.
func ValidateAPIServiceUpdate(a, _ *apiregistrationv1.APIService) field.ErrorList {
	return ValidateAPIService(a)
}

func apiGroup(s *apiregistrationv1.APIServiceSpec, path *field.Path) field.ErrorList {
	if s.Group != "" {
		return dnsSubdomain(s.Group, path)
	}
	if s.Version != "v1" {
		return field.ErrorList{field.Required(path, "only v1 may have an empty group and it better be legacy kube")}
	}
	return nil
}

func localAPIService(s *apiregistrationv1.APIServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.CABundle) > 0 {
		size := fmt.Sprintf("%d bytes", len(s.CABundle))
		errs = append(errs, field.Invalid(spec.Child("caBundle"), size, "local APIServices may not have a caBundle"))
	}
	if s.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true,
			"local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func remoteAPIService(s *apiregistrationv1.APIServiceSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	service := spec.Child("service")
	if s.Service.Namespace == "" {
		errs = append(errs, field.Required(service.Child("namespace"), ""))
	}
	if s.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	}
	var port int32
	if s.Service.Port != nil {
		port = *s.Service.Port
	}
	if messages := utilvalidation.IsValidPortNum(int(port)); len(messages) > 0 {
		errs = append(errs, field.Invalid(service.Child("port"), port, "port is not valid: "+strings.Join(messages, ", ")))
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func ValidateAPIServiceStatus(a, _ *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	conditions := field.NewPath("status", "conditions")
	for i, condition := range a.Status.Conditions {
		errs = append(errs, oneOf(condition.Status, conditions.Index(i).Child("status"),
			apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)...)
	}
	return errs
}
