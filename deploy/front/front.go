// Package front has the manifests of this directory for the program that applies them.
package front

import _ "embed" // for ClusterRBAC

// ClusterRBAC is cluster-rbac.yaml.
//
//go:embed cluster-rbac.yaml
var ClusterRBAC string

const (
	// Namespace and Account are the names of the service account of the front door, and of the Secret with its token.
	Namespace, Account = "portico-system", "portico-front"
)
