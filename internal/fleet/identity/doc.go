// Package identity sends the user of a request to the API servers of a cluster: as an impersonated user, as the user of a front
// proxy, or by the client's own token, which the cluster authenticates.
package identity
