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

// An admission policy reads its parameters as the server itself and shows them to whoever it refuses, or writes them into
// objects. So whoever writes a policy must be allowed to read all objects of its paramKind, and whoever writes a binding
// those of its paramRef: kube-apiserver's rule, as are the messages. What the paramKind's resource is called is asked of the
// RESTMapper by which the parameters are read. What cannot be determined needs the right for everything.

// policySpec is the part that policies of both kinds are asked about here.
func policySpec(obj runtime.Object) (paramKind *admissionregistrationv1.ParamKind, spec any) {
	switch p := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return p.Spec.ParamKind, &p.Spec
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return p.Spec.ParamKind, &p.Spec
	}
	return nil, nil
}

// authorizeParamKind lets a policy have a paramKind that its author may read. An update is asked about whenever the spec
// changes: kube-apiserver asks only when the paramKind does, so that an author without the right can add an expression that
// shows the parameters to a policy that has them already.
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
	// All objects, wherever they are: a rule for single names or namespaces is not enough.
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

// authorizeParamRef lets a binding have a paramRef that its author may read: get for one object by its name, list for a
// selector. Without a namespace that is a right in all namespaces. Every update of a binding that has a paramRef is asked
// about, as at kube-apiserver, whose comparison with the old one never finds the two equal.
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

// paramRefusal says that a user may not read what a paramRef refers to, and why he was asked for more than that if he was.
type paramRefusal struct {
	user    user.Info
	verb    string
	because string
}

// text is empty for no refusal. The two arguments of the last message are swapped for mutating policies, as in
// kube-apiserver.
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

// readParams asks whether the user of the request may read what ref refers to, given the paramKind of policy.
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

// storedParamKind reads a policy from its storage and not from a cache: what a cache does not know yet is not readable with
// fewer rights.
func storedParamKind(ctx context.Context, e *registry.Environment, policies, name string) (*admissionregistrationv1.ParamKind, error) {
	ctx = registry.ReadContext(ctx, admissionregistrationv1.GroupName, policies, "", name)
	obj, err := e.Storage(admissionregistrationv1.Resource(policies)).Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	kind, _ := policySpec(obj)
	return kind, nil
}

// paramAttributes names the resource of kind as exactly as it is known, and everything that it might be otherwise; trouble
// says what is not known.
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
