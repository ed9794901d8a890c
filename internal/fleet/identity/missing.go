package identity

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
)

// right is a right that the front door needs in a cluster.
type right authorizationv1.ResourceAttributes

// String returns the right as RBAC spells it.
func (r right) String() string {
	resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
	if r.Subresource != "" {
		resource.Resource += "/*"
	}
	return r.Verb + " " + resource.String()
}

// anyKey is a key of extra that no rule names. RBAC has no pattern for the keys: a rule for "userextras/*" is about a key named "*".
const anyKey = "portico-front-check"

// impersonationRights are in deploy/front/cluster-rbac.yaml, as are tokenRight and accessRight.
var (
	impersonationRights = []right{
		{Verb: "impersonate", Version: "v1", Resource: "users"},
		{Verb: "impersonate", Version: "v1", Resource: "groups"},
		{Verb: "impersonate", Group: authenticationv1.GroupName, Version: "v1", Resource: "uids"},
		{Verb: "impersonate", Group: authenticationv1.GroupName, Version: "v1", Resource: "userextras", Subresource: anyKey},
	}
	tokenRight  = right{Verb: "create", Group: authenticationv1.GroupName, Version: "v1", Resource: "tokenreviews"}
	accessRight = right{Verb: "create", Group: authorizationv1.GroupName, Version: "v1", Resource: "subjectaccessreviews"}
)

// Needs are why the front door needs rights in a cluster.
type Needs struct {
	Mode   v1alpha1.IdentityMode
	Tokens v1alpha1.TokenPolicy
	Access bool // the front door authorizes requests by an Access
	Shared []v1alpha1.SharedResources
}

// sharedRights returns the rights that shared requests need.
func sharedRights(list []v1alpha1.SharedResources) (rights []right) {
	for _, rule := range list {
		verbs := []string{"get", "list"}
		if rule.Watches {
			verbs = append(verbs, "watch")
		}
		for _, name := range rule.Resources {
			resource := schema.ParseGroupResource(name)
			for _, verb := range verbs {
				rights = append(rights, right{Verb: verb, Group: resource.Group, Resource: resource.Resource})
			}
		}
	}
	return rights
}

// Missing returns the rights that the credentials of the front door lack in the cluster. cluster is like that of NewTokens.
func Missing(ctx context.Context, cluster http.RoundTripper, needs Needs) ([]string, error) {
	client, rights := newReviewClient(cluster, needs.Mode), impersonationRights
	if needs.Mode == v1alpha1.FrontProxy {
		rights = nil
		if missing, err := client.missingTrust(ctx); err != nil || len(missing) > 0 {
			return missing, err // without trust, the API servers would check the rights of another user
		}
	}
	if needs.Tokens != v1alpha1.NoTokens {
		rights = append(slices.Clip(rights), tokenRight)
	}
	if needs.Access {
		rights = append(slices.Clip(rights), accessRight)
	}
	rights = slices.Concat(rights, sharedRights(needs.Shared))
	var missing []string
	for _, needed := range rights {
		allowed, err := client.isAllowed(ctx, needed)
		if err != nil {
			return nil, fmt.Errorf("check the right to %s: %w", needed, err)
		}
		if !allowed {
			missing = append(missing, needed.String())
		}
	}
	return missing, nil
}

// Message describes the result of Missing, and what to do.
func Message(missing []string) string {
	return "the credentials of the front door lack rights in the cluster: " + strings.Join(missing, ", ") +
		". deploy/front/cluster-rbac.yaml grants the rights to a service account there, except those for spec.shared"
}

func (r *reviewClient) isAllowed(ctx context.Context, needed right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: (*authorizationv1.ResourceAttributes)(&needed)},
	}
	var reply authorizationv1.SelfSubjectAccessReview
	err := r.create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, &reply)
	return reply.Status.Allowed, err
}

// probe is a user that exists in no cluster.
var probe = user.DefaultInfo{
	Name: "portico-front-check", Groups: []string{"portico-front-check", user.AllAuthenticated},
	Extra: map[string][]string{"portico-front-check": {"portico-front-check"}},
}

// missingTrust sends a request as the user probe, and returns why the API servers do not authenticate that user. It does not check
// the UID, because kubeadm configures no header for it, and kube-apiserver uses it for audit events only.
func (r *reviewClient) missingTrust(ctx context.Context) ([]string, error) {
	header := http.Header{}
	if err := proxy.WriteIdentity(header, proxy.RequestHeaders, &probe); err != nil {
		return nil, err
	}
	review := &authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	}
	var reply authenticationv1.SelfSubjectReview
	err := r.createAs(ctx, header, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, &reply)
	seen := reply.Status.UserInfo
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), err == nil && seen.Username != probe.Name: // it knows no user, or another one
		return []string{"be a front proxy (--requestheader-client-ca-file, --requestheader-allowed-names and " +
			"--requestheader-username-headers=X-Remote-User of the API servers)"}, nil
	case err != nil:
		return nil, fmt.Errorf("check that the API servers trust the certificate: %w", err)
	case !slices.Contains(seen.Groups, probe.Groups[0]):
		return []string{"send groups (--requestheader-group-headers=X-Remote-Group of the API servers)"}, nil
	case !slices.Equal(seen.Extra["portico-front-check"], probe.Extra["portico-front-check"]):
		return []string{"send extra (--requestheader-extra-headers-prefix=X-Remote-Extra- of the API servers)"}, nil
	}
	return nil, nil
}
