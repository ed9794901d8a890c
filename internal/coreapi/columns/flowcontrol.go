package columns

import (
	"cmp"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func FlowSchemaColumns() Printer {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	p := show(func(f *flowcontrolv1.FlowSchema, now time.Time) []any {
		distinguisher := none
		if f.Spec.DistinguisherMethod != nil {
			distinguisher = string(f.Spec.DistinguisherMethod.Type)
		}
		return []any{
			f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), distinguisher, ageOf(f, now),
			dangling(f),
		}
	}, name(), text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
		text("MatchingPrecedence", doc["matchingPrecedence"]), text("DistinguisherMethod", doc["distinguisherMethod"]),
		age(), text("MissingPL", "Whether the priority level that it names is missing"))
	// A list is shown in the order in which requests try the schemas: that is the question asked of it.
	p.order = func(items []runtime.Object) { slices.SortStableFunc(items, byPrecedence) }
	return p
}

func byPrecedence(a, b runtime.Object) int {
	left, isLeft := a.(*flowcontrolv1.FlowSchema)
	right, isRight := b.(*flowcontrolv1.FlowSchema)
	if !isLeft || !isRight {
		return 0
	}
	return cmp.Or(
		cmp.Compare(left.Spec.MatchingPrecedence, right.Spec.MatchingPrecedence),
		cmp.Compare(left.Name, right.Name))
}

func dangling(f *flowcontrolv1.FlowSchema) string {
	for _, condition := range f.Status.Conditions {
		if condition.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(condition.Status)
		}
	}
	return "?"
}

func PriorityLevelConfigurationColumns() Printer {
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return show(func(p *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
		var shares, queues, hand, length any = none, none, none, none
		if limited := p.Spec.Limited; limited != nil {
			if limited.NominalConcurrencyShares != nil {
				shares = int64(*limited.NominalConcurrencyShares)
			}
			if q := limited.LimitResponse.Queuing; q != nil {
				queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
			}
		}
		return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, ageOf(p, now)}
	}, name(), text("Type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
		text("NominalConcurrencyShares",
			flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
		text("Queues", queuing["queues"]), text("HandSize", queuing["handSize"]),
		text("QueueLengthLimit", queuing["queueLengthLimit"]), age())
}
