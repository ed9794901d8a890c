package registry

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/coreapi/allocation"
)

// Environment contains the parts of the server that kinds may use. A kind that needs the storage of another kind calls Storage
// during a request, or in Resource.Storages, never earlier.
type Environment struct {
	Scheme *runtime.Scheme
	// Authorizer and Rules are for reviews, and for permission checks of the author of a write.
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
	// Aggregate returns the rules of ClusterRoles, including aggregated ones. If nil, only users with all permissions can bind
	// an aggregated role.
	Aggregate AggregateFunc
	// Mapper maps the parameter kinds of admission policies to resources.
	Mapper meta.RESTMapper
	// BuiltIn contains the group-versions that this server serves itself, and Definitions the definitions of custom resources.
	BuiltIn     []schema.GroupVersion
	Definitions apiextensionslisters.CustomResourceDefinitionLister
	// DenyPrivileged refuses privileged containers.
	DenyPrivileged bool
	// EventTTL is the lifetime of Events. 0 means without a limit.
	EventTTL time.Duration
	// TokenAuthenticator authenticates the tokens of TokenReviews. If nil, no token is authenticated.
	TokenAuthenticator authenticator.Token
	// TokenIssuer signs tokens of service accounts. If nil, serviceaccounts/token is not served.
	TokenIssuer        TokenIssuer
	MaxTokenExpiration time.Duration
	// ClusterIPRanges and NodePorts are the ranges of addresses and ports for Services. Ports stores the claims on ports, and
	// InFlight the writes of Services in progress.
	ClusterIPRanges []netip.Prefix
	NodePorts       allocation.PortRange
	Ports           allocation.EtcdPorts
	InFlight        allocation.InFlight
	// Connector connects to kubelets and pods. If nil, requests for them get status 503.
	Connector Connector
	// CheckStore returns an error if etcd is not healthy.
	CheckStore func(context.Context) error
	// SameNamespace returns an error if the namespace is not the one that existed when the request began.
	SameNamespace func(ctx context.Context, name string) error
	Logger        *zap.Logger

	storages map[schema.GroupResource]*REST
}

// AggregateFunc returns the rules of each ClusterRole by name, including aggregated ones.
type AggregateFunc func([]*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule

// TokenIssuer signs tokens of service accounts.
type TokenIssuer interface {
	// IssueToken validates spec, checks that the account exists (with uid, unless that is empty) and that the bound object
	// exists with its UID, and signs a token. Client errors are API status errors, wrapped or not.
	IssueToken(ctx context.Context, namespace, name string, uid types.UID, spec authenticationv1.TokenRequestSpec) (IssuedToken, error)
}

// IssuedToken is a signed token.
type IssuedToken struct {
	Status authenticationv1.TokenRequestStatus
	// Audiences are the audiences of the token if the request has none.
	Audiences []string
	// CredentialID is the ID in the extra of the token's user, or empty.
	CredentialID string
}

// Storage returns the storage of a resource, even if runtime-config disables it, or nil if its group is not in this server.
func (e *Environment) Storage(resource schema.GroupResource) *REST { return e.storages[resource] }

// IsPrivileged reports whether the author of a request has all permissions without a role.
func (e *Environment) IsPrivileged(ctx context.Context) bool {
	u, ok := apirequest.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// Allowed reports whether the author of a request may use verb on the resource in attributes.
func (e *Environment) Allowed(ctx context.Context, verb string, attributes authorizer.AttributesRecord) bool {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	attributes.User, attributes.Verb, attributes.APIVersion, attributes.ResourceRequest = u, verb, "*", true
	decision, _, err := e.Authorizer.Authorize(ctx, attributes)
	return err == nil && decision == authorizer.DecisionAllow
}

// ReadContext derives from the context of a request the context of a read that storage makes on its behalf, so that keys and
// error messages refer to the object that is read.
func ReadContext(ctx context.Context, group, resource, namespace, name string) context.Context {
	ctx = apirequest.WithNamespace(ctx, namespace)
	return apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIPrefix: "apis", APIGroup: group, APIVersion: "v1",
		Resource: resource, Namespace: namespace, Name: name,
	})
}
