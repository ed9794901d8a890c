package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// spareSharedService replaces commands that change the Service if another APIService uses it and is available, because the
// change would break that one. It proposes the port of the other APIService instead, if that differs.
func (x *exam) spareSharedService(ctx context.Context, fix []string) []string {
	if x.service == nil {
		return fix
	}
	first := slices.IndexFunc(fix, x.changesService)
	if first < 0 {
		return fix
	}
	other := x.availableSharer(ctx)
	if other == nil {
		return fix
	}
	for first > 0 && strings.HasPrefix(fix[first-1], "#") { // the comments of the command
		first--
	}
	spared := slices.DeleteFunc(slices.Clone(fix[first:]), func(line string) bool { return x.changesService(line) || strings.HasPrefix(line, "#") })
	note := fmt.Sprintf("# the Service is not to be changed: APIService %s uses it too, and is available", other.Name)
	if port := portNumber(other.Spec.Service); port != x.port() {
		spared = append(spared, fmt.Sprintf("%s through port %d:", note, port), x.patchAPIService(fields{"service": fields{"port": port}}))
	} else {
		spared = append(spared, note+" through the same port:", Kubectl("describe", "apiservice", other.Name))
	}
	return append(slices.Clone(fix[:first]), spared...)
}

// changesService reports whether a line of a fix is a command that changes the Service.
func (x *exam) changesService(line string) bool {
	name := x.object.Spec.Service.Name
	return strings.HasPrefix(line, x.inNamespace("patch", "service", name)) || strings.HasPrefix(line, x.inNamespace("edit", "service", name))
}

// availableSharer returns another APIService that uses the same Service and is available, preferably through the same port. It
// returns nil if there is none, or if APIServices cannot be listed.
func (x *exam) availableSharer(ctx context.Context) *apiregistrationv1.APIService {
	var list apiregistrationv1.APIServiceList
	if x.api.get(ctx, apiServicesPath, &list) != nil {
		return nil
	}
	own := x.object.Spec.Service
	var found *apiregistrationv1.APIService
	for i := range list.Items {
		other := &list.Items[i]
		ref := other.Spec.Service
		if other.Name == x.object.Name || ref == nil || ref.Namespace != own.Namespace || ref.Name != own.Name ||
			conditionOf(other, apiregistrationv1.Available).Status != string(apiregistrationv1.ConditionTrue) {
			continue
		}
		if portNumber(ref) == x.port() {
			return other
		}
		if found == nil {
			found = other
		}
	}
	return found
}
