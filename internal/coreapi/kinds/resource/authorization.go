package resource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"portico.dev/internal/coreapi/registry"
)

// Two parts of a claim require more than permission to write it. Admin access, to devices that other claims use, is for claims
// in namespaces that an administrator has labelled. And the parts of a status have different authors: the scheduler allocates
// and reserves, and each driver reports on its own devices, on its own node. These components need not trust each other,
// because writes are authorized with subresources that clients cannot request.

// adminLabel marks the namespaces with claims that may have admin access.
const adminLabel = resourcev1.DRAAdminNamespaceLabelKey

func mayAdministerNewClaim(ctx context.Context, e *registry.Environment, obj runtime.Object) field.ErrorList {
	c := obj.(*resourcev1.ResourceClaim)
	return mayAdminister(ctx, e, c.Namespace, adminRequest(c.Spec.Devices.Requests))
}

// adminRequest returns the path of the first request for admin access, or nil.
func adminRequest(requests []resourcev1.DeviceRequest) *field.Path {
	for i, r := range requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// adminResult returns the path of the first result with admin access, or nil.
func adminResult(a *resourcev1.AllocationResult) *field.Path {
	if a == nil {
		return nil
	}
	for i, r := range a.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// mayAdminister requires the label on the namespace if path is not nil.
func mayAdminister(ctx context.Context, e *registry.Environment, namespace string, path *field.Path) field.ErrorList {
	if path == nil {
		return nil
	}
	read := registry.ReadContext(ctx, "", "namespaces", "", namespace)
	found, err := e.Storage(corev1.Resource("namespaces")).Get(read, namespace, &metav1.GetOptions{})
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if ns, ok := found.(*corev1.Namespace); !ok || ns.Labels[adminLabel] != "true" {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", adminLabel))}
	}
	return nil
}

func mayChangeClaimStatus(ctx context.Context, e *registry.Environment, obj, old runtime.Object) field.ErrorList {
	c, before := obj.(*resourcev1.ResourceClaim), old.(*resourcev1.ResourceClaim)
	var errs field.ErrorList
	if adminResult(before.Status.Allocation) == nil {
		errs = mayAdminister(ctx, e, c.Namespace, adminResult(c.Status.Allocation))
	}
	errs = append(errs, mayBind(ctx, e.Authorizer, &c.Status, &before.Status)...)
	if c.Status.Allocation != nil { // a status without an allocation has no devices
		errs = append(errs, mayReport(ctx, e.Authorizer, &c.Status, &before.Status)...)
	}
	return errs
}

// mayBind checks the scheduler's permission, for claims in all namespaces.
func mayBind(ctx context.Context, a authorizer.Authorizer, s, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if apiequality.Semantic.DeepEqual(s.Allocation, old.Allocation) && apiequality.Semantic.DeepEqual(s.ReservedFor, old.ReservedFor) {
		return nil
	}
	path := field.NewPath("status", "allocation")
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	verb := request.GetVerb()
	if err := authorize(ctx, a, synthetic{request, verb, resourcev1.SubresourceBinding, "", ""}); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, verb, err))}
	}
	return nil
}

// mayReport checks permission for each driver with devices that the write changes. A driver on the node of the devices needs
// less.
func mayReport(ctx context.Context, a authorizer.Authorizer, s, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	drivers := changedDrivers(s.Devices, old.Devices)
	if len(drivers) == 0 {
		return nil
	}
	path := field.NewPath("status", "devices")
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(path, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + request.GetVerb()}
	if runsOn(request.GetUser(), nodeOf(s.Allocation)) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + request.GetVerb()}, verbs...)
	}
	var errs field.ErrorList
	for _, driver := range drivers {
		if err := authorizeAny(ctx, a, request, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// authorizeAny requires one of the verbs. It returns the error for the first one if none is allowed.
func authorizeAny(ctx context.Context, a authorizer.Authorizer, request authorizer.Attributes, verbs []string, driver string) error {
	var first error
	for _, verb := range verbs {
		err := authorize(ctx, a, synthetic{request, verb, resourcev1.SubresourceDriver, request.GetNamespace(), driver})
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// changedDrivers returns the sorted drivers of the devices with an added, removed or changed status.
func changedDrivers(now, before []resourcev1.AllocatedDeviceStatus) []string {
	drivers, old := map[string]bool{}, map[device]resourcev1.AllocatedDeviceStatus{}
	for _, d := range before {
		old[deviceOf(&d)] = d
	}
	for _, d := range now {
		was, known := old[deviceOf(&d)]
		delete(old, deviceOf(&d))
		if !known || !apiequality.Semantic.DeepEqual(was, d) {
			drivers[d.Driver] = true
		}
	}
	for _, gone := range old {
		drivers[gone.Driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// nodeOf returns the node of an allocation for a single node, or "".
func nodeOf(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	if f := term.MatchFields[0]; f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
		return f.Values[0]
	}
	return ""
}

// runsOn reports whether u is a service account in a pod on node, according to its token.
func runsOn(u user.Info, node string) bool {
	if node == "" || u == nil {
		return false
	}
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	nodes := u.GetExtra()[serviceaccount.NodeNameKey]
	return len(nodes) == 1 && nodes[0] == node && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

func authorize(ctx context.Context, a authorizer.Authorizer, request synthetic) error {
	decision, reason, err := a.Authorize(ctx, request)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	var why []string
	if err != nil {
		why = append(why, err.Error())
	}
	if reason != "" {
		why = append(why, reason)
	}
	return responsewriters.ForbiddenStatusError(request, strings.Join(why, ": "))
}

// synthetic overrides the verb, subresource, namespace and name in the attributes of a request.
type synthetic struct {
	authorizer.Attributes
	verb, subresource, namespace, name string
}

func (s synthetic) GetVerb() string        { return s.verb }
func (s synthetic) GetSubresource() string { return s.subresource }
func (s synthetic) GetNamespace() string   { return s.namespace }
func (s synthetic) GetName() string        { return s.name }
