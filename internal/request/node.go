package request

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// NodeUserPrefix begins the user names of nodes.
const NodeUserPrefix = "system:node:"

// Node reports whether a user is a node, and which one: it is in the group system:nodes, and its name says so. A node without a name
// has the user name system:node: and nothing more. A name of that form alone makes nobody a node.
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
