package rbac

import (
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Master reports whether u may do anything. The group is asked before any rule and needs none: it is how an
// administrator gets in when roles are broken, and how this house fills the index in the first place. No binding can
// take it away, and only a certificate, a token file or a front proxy can give it.
func Master(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
