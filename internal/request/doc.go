// Package request is what is known of the request in hand: canonical path, RequestInfo, user, audit id.
//
// Facts travel in the request's context under the keys of k8s.io/apiserver/pkg/endpoints/request, so that the
// library that serves the local groups reads the same facts as the rest of the house.
package request
