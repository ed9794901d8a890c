// Package dispatch serves requests for a group-version. Each capability is a Handler in a separate file, independent
// of the other handlers. Handlers.compile nests the handlers of a route when the routing table changes. Dispatching a
// request does not allocate.
//
// Handlers receive the RequestInfo, the user and the audit record as fields of a filters.Request. They do not read
// them from a context.
package dispatch
