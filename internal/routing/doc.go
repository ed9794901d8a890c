// Package routing decides which extension server of a group-version gets a request, by the rules of its APIRoute.
//
// Validate says what is wrong with an APIRoute, and Warnings what is allowed and yet a mistake. Compile makes a Route of an
// APIRoute: an immutable value, which is part of the routing table (package apiservice) and is asked once for each request.
//
// A decision depends on the request as it was authorized and on nothing else: verb, namespace, resource, name, user and headers.
// Rules are asked only after authorization and change none of these, so that they never change what a user may do. A backend
// of another version is one of the same group, because authorization does not look at versions.
//
// Rules about names or namespaces cannot decide about a list of objects that several rules select. Choose then returns all
// backends that may have some, and the list is merged of theirs; each object is taken only from the backend to which a request
// for this object would go.
package routing
