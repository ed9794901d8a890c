package registry

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Nobody may grant what they do not hold: otherwise the right to write a RoleBinding, which looks small, would be the
// right to become cluster-admin. The verbs "escalate" and "bind" lift the rule, and so does system:masters, who hold
// everything without a rule that says so.

// WriteAuthorizer know what the author of a write may do.
type WriteAuthorizer struct {
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
	// roleRules finds the rules behind a reference. It is set once the roles have their storage.
	RoleRules func(ctx context.Context, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error)
	// mapper knows what the kinds of parameters of admission policies are called as resources.
	Mapper meta.RESTMapper
	// validatingPolicy and mutatingPolicy find what kind of parameters a policy has. They are set once the policies have
	// their storage.
	ValidatingPolicy, MutatingPolicy PolicyGetter
	// builtIn is what this server serves, and beside knows what definitions serve.
	BuiltIn []schema.GroupVersion
	Related *RelatedObjects
}

func (g *WriteAuthorizer) MayEverything(ctx context.Context) bool {
	u, ok := apirequest.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

func (g *WriteAuthorizer) May(ctx context.Context, verb string, about authorizer.AttributesRecord) bool {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	about.User, about.Verb, about.APIVersion, about.ResourceRequest = u, verb, "*", true
	decision, _, err := g.Authorizer.Authorize(ctx, about)
	return err == nil && decision == authorizer.DecisionAllow
}

// An admission policy reads its parameters as the server itself and shows them to whoever it refuses, or writes them into
// objects. So whoever writes a policy must be allowed to read all objects of its paramKind, and whoever writes a binding
// those of its paramRef: kube-apiserver's rule, as are the messages. What the paramKind's resource is called is asked of the
// RESTMapper by which the parameters are read. What cannot be determined needs the right for everything.

// PolicyGetter reads the paramKind of an admission policy as it is stored now; nil when it has none.
type PolicyGetter func(ctx context.Context, name string) (*admissionregistrationv1.ParamKind, error)
