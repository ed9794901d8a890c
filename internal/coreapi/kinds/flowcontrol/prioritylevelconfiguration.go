package flowcontrol

import (
	"fmt"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func priorityLevelConfigurationResource() registry.Resource {
	return registry.Resource{
		Name: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration", ClusterScoped: true, AllowUnconditionalUpdate: true, Generations: true,
		Object: &flowcontrolv1.PriorityLevelConfiguration{}, List: &flowcontrolv1.PriorityLevelConfigurationList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}",
		},
		Rules:    validate.WithStatus(validatePriorityLevelConfiguration, validatePriorityLevelConfigurationUpdate, validatePriorityLevelConfigurationStatus),
		Defaults: defaults.Of(defaultPriorityLevelConfiguration),
		Columns:  priorityLevelConfigurationColumns,
		Spec: registry.SpecOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationSpec {
			return &p.Spec
		}),
		Status: registry.StatusOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &p.Status
		}),
	}
}

func priorityLevelConfigurationColumns() columns.Printer {
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return columns.Show(func(p *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
		var shares, queues, hand, length any = columns.None, columns.None, columns.None, columns.None
		if limited := p.Spec.Limited; limited != nil {
			if limited.NominalConcurrencyShares != nil {
				shares = int64(*limited.NominalConcurrencyShares)
			}
			if q := limited.LimitResponse.Queuing; q != nil {
				queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
			}
		}
		return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, columns.AgeOf(p, now)}
	}, columns.Name(), columns.Text("Type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
		columns.Text("NominalConcurrencyShares",
			flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
		columns.Text("Queues", queuing["queues"]), columns.Text("HandSize", queuing["handSize"]),
		columns.Text("QueueLengthLimit", queuing["queueLengthLimit"]), columns.Age())
}

func defaultPriorityLevelConfiguration(p *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := p.Spec.Exempt; exempt != nil {
		defaults.Point(&exempt.NominalConcurrencyShares, 0)
		defaults.Point(&exempt.LendablePercent, 0)
	}
	limited := p.Spec.Limited
	if limited == nil {
		return
	}
	defaults.Point(&limited.NominalConcurrencyShares, 30)
	defaults.Point(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		defaults.Set(&queuing.Queues, 64)
		defaults.Set(&queuing.HandSize, 8)
		defaults.Set(&queuing.QueueLengthLimit, 50)
	}
}

const maxQueues = 10 * 1000 * 1000

func validatePriorityLevelConfiguration(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	errs := validate.ObjectMeta(&p.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	exempt := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if exempt != (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(spec.Child("type"), p.Spec.Type,
			"type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch {
	case exempt:
		errs = append(errs, exemptLevel(&p.Spec, spec)...)
	case p.Spec.Type == flowcontrolv1.PriorityLevelEnablementLimited:
		errs = append(errs, limitedLevel(&p.Spec, spec)...)
	default:
		errs = append(errs, validate.Required(p.Spec.Type, spec.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt,
			flowcontrolv1.PriorityLevelEnablementLimited)...)
		if p.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(spec.Child("limited"), ""))
		}
	}
	return append(append(errs, fixedLevel(p, spec)...), validatePriorityLevelConfigurationStatus(p, nil)...)
}

func validatePriorityLevelConfigurationUpdate(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validatePriorityLevelConfiguration(p)
}

func validatePriorityLevelConfigurationStatus(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	types := make([]string, 0, len(p.Status.Conditions))
	for _, condition := range p.Status.Conditions {
		types = append(types, string(condition.Type))
	}
	return conditionTypes(types)
}

// fixedLevel protects the two mandatory priority levels. The shares of the exempt level may be tuned.
func fixedLevel(p *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) field.ErrorList {
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if p.Name != fixed.Name {
			continue
		}
		want := fixed.Spec.DeepCopy()
		if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt = p.Spec.Exempt
		}
		if !apiequality.Semantic.DeepEqual(p.Spec, *want) {
			return field.ErrorList{field.Invalid(path, p.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", p.Name))}
		}
	}
	return nil
}

func exemptLevel(s *flowcontrolv1.PriorityLevelConfigurationSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Limited != nil {
		errs = append(errs, field.Forbidden(spec.Child("limited"), "must be nil if the type is not Limited"))
	}
	path := spec.Child("exempt")
	if s.Exempt == nil {
		return append(errs, field.Required(path, "must not be empty"))
	}
	if shares := s.Exempt.NominalConcurrencyShares; shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	return append(errs, percentage(s.Exempt.LendablePercent, path.Child("lendablePercent"))...)
}

func limitedLevel(s *flowcontrolv1.PriorityLevelConfigurationSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Exempt != nil {
		errs = append(errs, field.Forbidden(spec.Child("exempt"), ""))
	}
	path := spec.Child("limited")
	if s.Limited == nil {
		return append(errs, field.Required(path, ""))
	}
	shares, at := s.Limited.NominalConcurrencyShares, path.Child("nominalConcurrencyShares")
	switch {
	case shares == nil:
		errs = append(errs, field.Required(at, ""))
	case *shares < 0:
		errs = append(errs, field.Invalid(at, *shares, "must be a non-negative integer"))
	}
	errs = append(errs, percentage(s.Limited.LendablePercent, path.Child("lendablePercent"))...)
	if borrowing := s.Limited.BorrowingLimitPercent; borrowing != nil && *borrowing < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *borrowing,
			"if specified, must be a non-negative integer"))
	}
	return append(errs, limitResponse(&s.Limited.LimitResponse, path.Child("limitResponse"))...)
}

func percentage(p *int32, path *field.Path) field.ErrorList {
	if p != nil && (*p < 0 || *p > 100) {
		return field.ErrorList{field.Invalid(path, *p, "must be between 0 and 100, inclusive")}
	}
	return nil
}

func limitResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	queuing := path.Child("queuing")
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if r.Queuing != nil {
			return field.ErrorList{field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited")}
		}
		return nil
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing == nil {
			return field.ErrorList{field.Required(queuing, "")}
		}
		return queues(r.Queuing, queuing)
	}
	errs := validate.Required(r.Type, path.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
	if r.Queuing != nil {
		errs = append(errs, field.Forbidden(queuing, ""))
	}
	return errs
}

// queues also requires that shuffle sharding can deal a hand of queues from the bits of one hash.
func queues(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, "must be positive"))
	case q.Queues > maxQueues:
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
		return append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		return append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case q.Queues > maxQueues:
		return errs
	}
	if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}
