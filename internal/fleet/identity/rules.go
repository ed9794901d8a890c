package identity

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/fleet/v1alpha1"
)

// Rules convert a user of the front door into a user of a cluster.
//
// Names that begin with "system:" have rights in every cluster. A service account or a node of the front door would have the rights of
// the one with the same name in the cluster. Only UserPrefix, GroupPrefix and SystemGroups matter.
type Rules v1alpha1.ClusterIdentity

// RulesOf returns the rules in the spec of a Cluster.
func RulesOf(c v1alpha1.ClusterIdentity) Rules { return Rules(c) }

// Of returns the user in the cluster for a user of the front door. A user that must not be sent is a 403. The result is exactly the
// user that kube-apiserver reads from its headers: without empty and repeated groups, without keys of extra that have no value, and
// in the group system:authenticated or system:unauthenticated.
func (r Rules) Of(u user.Info) (user.Info, error) {
	if _, ok := u.(*tokenUser); ok {
		return nil, errors.New("a user of the cluster is not a user of the front door")
	}
	name, err := r.nameOf(u.GetName())
	if err != nil {
		return nil, err
	}
	groups, err := r.groupsOf(name, u.GetGroups())
	if err != nil {
		return nil, err
	}
	extra, err := extraOf(u.GetExtra())
	if err != nil {
		return nil, err
	}
	return &user.DefaultInfo{Name: name, UID: u.GetUID(), Groups: groups, Extra: extra}, nil
}

func (r Rules) nameOf(name string) (string, error) {
	switch {
	case name == user.Anonymous:
		return name, nil
	case name == "":
		return "", forbidden("the user has no name")
	case isSystem(name):
		return "", forbidden(fmt.Sprintf("%q is a user of the front door, and clusters give rights to names that begin with %q. "+
			"Use another user, or a token of a service account of the cluster", name, systemPrefix))
	case isSystem(r.UserPrefix + name):
		return "", forbidden(fmt.Sprintf("the prefix of users and the name %q result in a name that begins with %q. "+
			"Change spec.identity.userPrefix of the Cluster", name, systemPrefix))
	}
	return r.UserPrefix + name, nil
}

// groupsOf returns the groups of a user. name is the name in the cluster.
func (r Rules) groupsOf(name string, groups []string) ([]string, error) {
	sent := make([]string, 0, len(groups)+1)
	added := make(map[string]bool, len(groups)+1)
	add := func(group string) {
		if !added[group] {
			added[group] = true
			sent = append(sent, group)
		}
	}
	for _, group := range groups {
		switch {
		case group == "":
		case isSystem(group):
			if group == user.AllAuthenticated || group == user.AllUnauthenticated || slices.Contains(r.SystemGroups, group) {
				add(group)
			}
		case isSystem(r.GroupPrefix + group):
			return nil, forbidden(fmt.Sprintf("the prefix of groups and the group %q result in a name that begins with %q. "+
				"Change spec.identity.groupPrefix of the Cluster", group, systemPrefix))
		default:
			add(r.GroupPrefix + group)
		}
	}
	// kube-apiserver would add the same group to an impersonated user.
	if name == user.Anonymous || added[user.AllUnauthenticated] {
		add(user.AllUnauthenticated)
	} else {
		add(user.AllAuthenticated)
	}
	return sent, nil
}

// extraOf returns the extra of a user. It contains the restrictions of a user, such as the scopes of a token, so no key is left out.
// Authenticators of the front door choose the keys, not clients. Keys of Kubernetes are refused, because policies of a cluster use them
// to identify the pod and the node of a service account. The exception is the ID of the credential, which is for audit events.
func extraOf(extra map[string][]string) (map[string][]string, error) {
	var sent map[string][]string
	for key, values := range extra {
		switch {
		case len(values) == 0:
		case key == "":
			return nil, forbidden("a key of the user's extra is empty, and cannot be sent")
		case key != user.CredentialIDKey && isKubernetes(key):
			return nil, forbidden(fmt.Sprintf("the user's extra has the key %q, which only the cluster may set. "+
				"Change the authenticator of the front door that sets it", key))
		default:
			if sent == nil {
				sent = make(map[string][]string, len(extra))
			}
			sent[key] = values
		}
	}
	return sent, nil
}

const systemPrefix = "system:"

// isSystem reports whether a name begins with "system:" in any case. kube-apiserver compares the case, but authorization webhooks and
// policies might not.
func isSystem(name string) bool {
	return len(name) >= len(systemPrefix) && strings.EqualFold(name[:len(systemPrefix)], systemPrefix)
}

// isKubernetes reports whether a key of extra is in a domain that is reserved for Kubernetes.
func isKubernetes(key string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return true
		}
	}
	return false
}

func forbidden(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "the user is not sent to the cluster: " + text,
	}}
}
