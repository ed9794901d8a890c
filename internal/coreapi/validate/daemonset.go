package validate

import (
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateDaemonSet(s *appsv1.DaemonSet) field.ErrorList {
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, daemonSetSpec(s)...)
}

func ValidateDaemonSetUpdate(s, old *appsv1.DaemonSet) field.ErrorList {
	errs := immutable(s.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
	return append(errs, daemonSetSpec(s)...)
}

func daemonSetSpec(d *appsv1.DaemonSet) field.ErrorList {
	s, path := &d.Spec, field.NewPath("spec")
	at := path.Child("selector")
	errs := selector(s.Selector, at)
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil {
		errs = append(errs, selected(&s.Template, parsed, path.Child("template"))...)
	}
	if s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, s.Selector, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, template(&s.Template, path.Child("template"))...)
	errs = append(errs, forever(&s.Template, path.Child("template"), "DaemonSet")...)
	errs = append(errs, naturals(path, fieldsOf{
		"minReadySeconds": int64(s.MinReadySeconds), "revisionHistoryLimit": given(s.RevisionHistoryLimit),
		"templateGeneration": TemplateGeneration(d),
	})...)
	return append(errs, daemonStrategy(&s.UpdateStrategy, path.Child("updateStrategy"))...)
}

// TemplateGeneration counts the changes of a DaemonSet's template, 0 when it has not been counted. What was a field once
// is an annotation since apps/v1, and controllers name pods by it.
func TemplateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func daemonStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType,
		})}
	}
	rolling := path.Child("rollingUpdate")
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(rolling, "")}
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	atUnavailable, atSurge := rolling.Child("maxUnavailable"), rolling.Child("maxSurge")
	errs := append(share(unavailable, atUnavailable), share(surge, atSurge)...)
	errs = append(errs, notAboveAll(unavailable, atUnavailable)...)
	errs = append(errs, notAboveAll(surge, atSurge)...)
	switch down, up := amountOf(unavailable) != 0, amountOf(surge) != 0; {
	case down && up:
		errs = append(errs, field.Invalid(atSurge, surge, "may not be set when maxUnavailable is non-zero"))
	case !down && !up:
		errs = append(errs, field.Required(atUnavailable, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func ValidateDaemonSetStatus(set, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"currentNumberScheduled": int64(s.CurrentNumberScheduled), "numberMisscheduled": int64(s.NumberMisscheduled),
		"desiredNumberScheduled": int64(s.DesiredNumberScheduled), "numberReady": int64(s.NumberReady),
		"observedGeneration": s.ObservedGeneration, "updatedNumberScheduled": int64(s.UpdatedNumberScheduled),
		"numberAvailable": int64(s.NumberAvailable), "numberUnavailable": int64(s.NumberUnavailable),
		"collisionCount": given(s.CollisionCount),
	})
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func ValidateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs, path := revisionMeta(r), field.NewPath("data")
	if r.Data.Raw == nil {
		return append(errs, field.Required(path, "data is mandatory"))
	}
	var data any
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err)))
	}
	if data == nil {
		return append(errs, field.Required(path, "data is mandatory"))
	}
	if _, isObject := data.(map[string]any); !isObject {
		return append(errs, field.Required(path, "data must be a valid JSON object"))
	}
	return errs
}

// ValidateControllerRevisionUpdate keeps history from being rewritten. The number may change: a rollback makes an old revision
// the newest.
func ValidateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	return append(revisionMeta(r), immutable(r.Data, old.Data, field.NewPath("data"))...)
}

func revisionMeta(r *appsv1.ControllerRevision) field.ErrorList {
	errs := objectMeta(&r.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, validation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))...)
}
