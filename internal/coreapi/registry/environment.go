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

// Environment is what kinds may use of the server that serves them. A kind that needs the storage of another one asks for
// it by Storage when a request needs it, or in Resource.Storages, never earlier.
type Environment struct {
	Scheme *runtime.Scheme
	// Authorizer and Rules answer reviews, and whether the author of a write may make it.
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
	// Aggregate returns the rules of ClusterRoles, aggregated ones included. Nil: only those who may everything can bind an
	// aggregated role.
	Aggregate AggregateFunc
	// Mapper knows the resources of the kinds of parameters of admission policies.
	Mapper meta.RESTMapper
	// BuiltIn are the group-versions that this server serves itself, and Definitions the definitions of custom resources.
	BuiltIn     []schema.GroupVersion
	Definitions apiextensionslisters.CustomResourceDefinitionLister
	// DenyPrivileged refuses privileged containers.
	DenyPrivileged bool
	// EventTTL is how long Events are kept. Zero: an hour.
	EventTTL time.Duration
	// TokenAuthenticator answers TokenReviews. Nil: every token is answered unauthenticated.
	TokenAuthenticator authenticator.Token
	// TokenIssuer signs tokens of service accounts. Nil: serviceaccounts/token is not served.
	TokenIssuer        TokenIssuer
	MaxTokenExpiration time.Duration
	// ClusterIPRanges and NodePorts are what Services get addresses and ports from, Ports the claims on ports, and InFlight
	// the writes of Services that are under way.
	ClusterIPRanges []netip.Prefix
	NodePorts       allocation.PortRange
	Ports           allocation.EtcdPorts
	InFlight        allocation.InFlight
	// Connector reaches kubelets and pods. Nil: requests for them are answered 503.
	Connector Connector
	// CheckStore reports what is wrong with etcd.
	CheckStore func(context.Context) error
	// SameNamespace fails if the namespace is not the one that was there when the request in hand began.
	SameNamespace func(ctx context.Context, name string) error
	Logger        *zap.Logger

	storages map[schema.GroupResource]*REST
}

// AggregateFunc returns what each ClusterRole gives, by name, aggregated ones included.
type AggregateFunc func([]*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule

// TokenIssuer signs tokens of service accounts.
type TokenIssuer interface {
	// IssueToken checks what spec asks for, that the account is there (with uid, unless that is empty) and that what the
	// token is to be bound to is there with its UID, and signs. What the client did wrong is an API status error, wrapped or
	// not.
	IssueToken(ctx context.Context, namespace, name string, uid types.UID, spec authenticationv1.TokenRequestSpec) (IssuedToken, error)
}

// IssuedToken is a token that has been signed.
type IssuedToken struct {
	Status authenticationv1.TokenRequestStatus
	// Audiences are those of the token, for when the request named none.
	Audiences []string
	// CredentialID is what uses of the token have in their user's extra, empty when it has none.
	CredentialID string
}

// Storage is the storage of a resource, whether runtime-config has it served or not. Nil: its group is not in this server.
func (e *Environment) Storage(resource schema.GroupResource) *REST { return e.storages[resource] }

// IsPrivileged reports whether the author of a request may do everything without a rule that says so.
func (e *Environment) IsPrivileged(ctx context.Context) bool {
	u, ok := apirequest.UserFrom(ctx)
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// Allowed reports whether the author of a request may use verb on what attributes describe.
func (e *Environment) Allowed(ctx context.Context, verb string, attributes authorizer.AttributesRecord) bool {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	attributes.User, attributes.Verb, attributes.APIVersion, attributes.ResourceRequest = u, verb, "*", true
	decision, _, err := e.Authorizer.Authorize(ctx, attributes)
	return err == nil && decision == authorizer.DecisionAllow
}

// ReadContext turns the context of one request into that of a read which storage makes on its behalf, so that keys and
// error messages are about the object read.
func ReadContext(ctx context.Context, group, resource, namespace, name string) context.Context {
	ctx = apirequest.WithNamespace(ctx, namespace)
	return apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIPrefix: "apis", APIGroup: group, APIVersion: "v1",
		Resource: resource, Namespace: namespace, Name: name,
	})
}
