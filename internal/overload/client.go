package overload

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Client says how long a user's requests are served while memory runs out.
type Client int

const (
	// Ordinary clients are refused first.
	Ordinary Client = iota
	// System clients are nodes, and the controllers of the control plane: while they are refused, nodes count as dead.
	System
	// Admin is system:masters: whoever mends things.
	Admin
)

// ClientOf is what a user is. Who acts as somebody else counts by their own name.
func ClientOf(u user.Info) Client {
	if u == nil {
		return Ordinary
	}
	groups := u.GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		return Admin
	}
	switch name := u.GetName(); {
	case name == user.KubeControllerManager, name == user.KubeScheduler:
		return System
	case strings.HasPrefix(name, "system:node:") && slices.Contains(groups, user.NodesGroup):
		return System
	case strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix) && slices.Contains(groups, controllers):
		return System
	}
	return Ordinary
}

// controllers is the group of the service accounts of kube-system.
var controllers = serviceaccount.ServiceAccountGroupPrefix + "kube-system"

// Serves reports whether a client's requests are served.
func (l Level) Serves(c Client) bool {
	switch c {
	case Admin:
		return true
	case System:
		return l < Exhausted
	}
	return l == Normal
}
