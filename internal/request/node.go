package request

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// NodeUserPrefix is the prefix of the user names of nodes.
const NodeUserPrefix = "system:node:"

// Node reports whether a user is a node, and returns the node's name. The user must be in the group system:nodes and
// have a name with NodeUserPrefix. The name of the node may be empty.
func Node(u user.Info) (name string, isNode bool) {
	if u == nil {
		return "", false
	}
	name, isNode = strings.CutPrefix(u.GetName(), NodeUserPrefix)
	if !isNode || !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return name, true
}
