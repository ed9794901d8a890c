package columns

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func APIServiceColumns() Printer {
	return show(func(a *apiregistrationv1.APIService, now time.Time) []any {
		service := "Local"
		if a.Spec.Service != nil {
			service = a.Spec.Service.Namespace + "/" + a.Spec.Service.Name
		}
		return []any{a.Name, service, availability(a), ageOf(a, now)}
	}, name(), text("Service", "The service behind this API, or Local when the front door itself serves it"),
		text("Available", "Whether requests for this API can be answered, and why not"), age())
}

// availability shows the reason only when the answer is not a plain yes: it is what people look for in this column.
func availability(a *apiregistrationv1.APIService) string {
	for _, condition := range a.Status.Conditions {
		if condition.Type != apiregistrationv1.Available {
			continue
		}
		if condition.Status == apiregistrationv1.ConditionTrue || condition.Reason == "" {
			return string(condition.Status)
		}
		return string(condition.Status) + " (" + condition.Reason + ")"
	}
	return string(apiregistrationv1.ConditionUnknown)
}

func LeaseColumns() Printer {
	return show(func(l *coordinationv1.Lease, now time.Time) []any {
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		return []any{l.Name, holder, ageOf(l, now)}
	}, name(), text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), age())
}
