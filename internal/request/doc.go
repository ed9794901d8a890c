// Package request provides the attributes of the current request: its context, the canonical path, RequestInfo, user
// and audit id.
//
// A [Context] supports the keys of k8s.io/apiserver/pkg/endpoints/request, so that k8s.io/apiserver's handlers for
// the local groups use the same attributes as the rest of the server.
package request
