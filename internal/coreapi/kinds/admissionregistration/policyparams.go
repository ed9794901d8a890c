package admissionregistration

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/coreapi/registry"
)

// The server reads the parameters of an admission policy with its own rights. The policy shows them to the clients that it
// refuses, or writes them into objects. So the author of a policy must be allowed to read all objects of its paramKind, and the
// author of a binding the objects of its paramRef. Rule and messages are kube-apiserver's. The resource of a paramKind comes
// from the RESTMapper that the parameters are read with. If something cannot be determined, the author needs permission for all
// values of it.

// policySpec returns the paramKind and the spec of a policy of either kind.
func policySpec(obj runtime.Object) (paramKind *admissionregistrationv1.ParamKind, spec any) {
	switch p := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return p.Spec.ParamKind, &p.Spec
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return p.Spec.ParamKind, &p.Spec
	}
	return nil, nil
}

// authorizeParamKind refuses a policy if its author may not read all objects of the paramKind. An update is checked whenever
// the spec changes. kube-apiserver checks only if the paramKind changes, so an author without the permission can add an
// expression that exposes the parameters to a policy that already has them.
func authorizeParamKind(ctx context.Context, e *registry.Environment, obj, old runtime.Object) *field.Error {
	kind, spec := policySpec(obj)
	if kind == nil {
		return nil
	}
	if old != nil {
		if _, before := policySpec(old); apiequality.Semantic.DeepEqual(spec, before) {
			return nil
		}
	}
	if e.IsPrivileged(ctx) {
		return nil
	}
	path := field.NewPath("spec", "paramKind")
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return field.Forbidden(path, "cannot identify user to authorize read access to paramKind resources")
	}
	attributes, _ := paramAttributes(e, kind)
	// Permission for single names or namespaces is not sufficient.
	attributes.User, attributes.Verb, attributes.Name, attributes.Namespace = u, "get", "*", "*"
	decision, _, err := e.Authorizer.Authorize(ctx, attributes)
	switch {
	case err != nil:
		return field.Forbidden(path, err.Error())
	case decision != authorizer.DecisionAllow:
		return field.Forbidden(path, fmt.Sprintf(
			`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, u, kind.Kind, kind.APIVersion))
	}
	return nil
}

// authorizeParamRef refuses a binding if its author may not read the paramRef: get for an object by name, list for a selector.
// Without a namespace the permission is required in all namespaces. Every update of a binding with a paramRef is checked.
// kube-apiserver does so too, because its comparison with the old paramRef never finds the two equal.
func authorizeParamRef(ctx context.Context, e *registry.Environment, obj, _ runtime.Object) *field.Error {
	var message string
	switch b := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		refusal, err := readParams(ctx, e, "validatingadmissionpolicies", b.Spec.PolicyName, b.Spec.ParamRef)
		if message = refusal.text(false); err != nil {
			message = fmt.Sprintf("failed to authorize request: %v", err)
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		refusal, err := readParams(ctx, e, "mutatingadmissionpolicies", b.Spec.PolicyName, b.Spec.ParamRef)
		if message = refusal.text(true); err != nil {
			message = err.Error()
		}
	}
	if message == "" {
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "paramRef"), message)
}

// A paramRefusal describes a user who may not read the objects of a paramRef. because is set if the required permission was
// wider than the paramRef.
type paramRefusal struct {
	user    user.Info
	verb    string
	because string
}

// text returns an empty string for a nil refusal. The two arguments of the last message are swapped for mutating policies, as
// in kube-apiserver.
func (r *paramRefusal) text(mutating bool) string {
	const format = `user %v does not have "%v" permission on the object referenced by paramRef`
	switch {
	case r == nil:
		return ""
	case r.user == nil:
		return "cannot identify user to authorize read access to paramRef object"
	case r.because != "":
		return fmt.Sprintf(`%s to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`,
			r.because, r.user, r.verb)
	case mutating:
		return fmt.Sprintf(format, r.verb, r.user)
	}
	return fmt.Sprintf(format, r.user, r.verb)
}

// readParams returns a refusal if the user of the request may not read the objects of ref, given the paramKind of policy.
func readParams(ctx context.Context, e *registry.Environment, policies, policy string, ref *admissionregistrationv1.ParamRef) (*paramRefusal, error) {
	if ref == nil || e.IsPrivileged(ctx) {
		return nil, nil
	}
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return &paramRefusal{}, nil
	}
	refusal := &paramRefusal{user: u, verb: "get"}
	if ref.Name == "" {
		refusal.verb = "list"
	}
	kind, err := storedParamKind(ctx, e, policies, policy)
	if err != nil {
		refusal.because = "unable to get policy " + policy
	}
	attributes, trouble := paramAttributes(e, kind)
	if trouble != "" {
		refusal.because = trouble
	}
	attributes.User, attributes.Verb, attributes.Name, attributes.Namespace = u, refusal.verb, ref.Name, ref.Namespace
	decision, _, err := e.Authorizer.Authorize(ctx, attributes)
	if err != nil {
		return nil, err
	}
	if decision == authorizer.DecisionAllow {
		return nil, nil
	}
	return refusal, nil
}

// storedParamKind reads a policy from storage, not from a cache, so that a stale policy cannot lower the required permission.
func storedParamKind(ctx context.Context, e *registry.Environment, policies, name string) (*admissionregistrationv1.ParamKind, error) {
	ctx = registry.ReadContext(ctx, admissionregistrationv1.GroupName, policies, "", name)
	obj, err := e.Storage(admissionregistrationv1.Resource(policies)).Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	kind, _ := policySpec(obj)
	return kind, nil
}

// paramAttributes returns the resource of kind as exactly as it can be determined, with "*" for the rest. trouble describes the
// part that could not be determined.
func paramAttributes(e *registry.Environment, kind *admissionregistrationv1.ParamKind) (a authorizer.AttributesRecord, trouble string) {
	a = authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "*", APIVersion: "*", Resource: "*"}
	if kind == nil {
		return a, ""
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return a, fmt.Sprintf("unable to parse paramKind &{%s %s}", kind.APIVersion, kind.Kind)
	}
	a.APIGroup, a.APIVersion = gv.Group, gv.Version
	mapping, err := e.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind.Kind}, gv.Version)
	if err != nil {
		return a, fmt.Sprintf("unable to resolve paramKind &{%s %s}", kind.APIVersion, kind.Kind)
	}
	a.Resource = mapping.Resource.Resource
	return a, ""
}
