// Package routing decides which extension server of a group-version receives a request, by the rules of its APIRoute.
//
// Validate returns the errors in an APIRoute, and Warnings the valid settings that are probably mistakes. Compile
// returns the Route of an APIRoute: an immutable value, which is part of the routing table (package apiservice) and
// is evaluated once per request.
//
// A decision depends only on the authorized request: verb, namespace, resource, name, user and headers. Rules are
// evaluated after authorization and do not change any of these, so that they never change the rights of a user. A
// backend of another version has the same group, because authorization does not depend on versions.
//
// Rules about names or namespaces cannot decide about a list of objects that several rules select. Choose then
// returns all backends that may have some of the objects, and their lists are merged. The merged list contains an
// object only from the backend that would receive a request for this object.
package routing
