// Package request has what is known of the present request: its context, the canonical path, RequestInfo, user and
// audit id.
//
// A [Context] answers the keys of k8s.io/apiserver/pkg/endpoints/request, so that the library that serves the local
// groups reads the same facts as the rest of the server.
package request
