// Package coreapi serves the local API groups and custom resources through an http.Handler and an in-process client.
//
// The REST machinery of k8s.io/apiserver serves the local groups over one etcd client. It provides patch, apply, dry run, the
// watch cache and Table. Portico implements the kinds, their columns, defaults, validation and storage. Each v1 type is its own
// internal version, so nothing is converted between the wire and etcd, with two exceptions: Event, which two groups serve
// (kinds/events), and HorizontalPodAutoscaler, which two versions serve (kinds/autoscaling).
//
// # Layout
//
//   - kinds/<group>/<kind>.go contains everything about a kind: its descriptor (registry.Resource) with columns, defaults,
//     validation, field selectors, subresources, scale, samples for tests, and its runtime-config settings. A large
//     kind has several files that begin with its name. group.go lists the kinds of the group. A new kind needs a new
//     file, a line in group.go, and go generate for the OpenAPI documents.
//   - kinds lists the groups that every front door has, kinds/cluster those that only clusters with nodes need. The
//     aggregator imports the latter in one line, which can be omitted.
//   - registry contains the code shared by kinds: Resource and Group, strategies, storage and its subresources, and
//     Environment, the parts of the server that kinds may use.
//   - validate, columns, defaults and selectable contain building blocks for kinds of several groups, such as the
//     validation of metadata and pod templates. They do not depend on the table of kinds.
//   - admission contains the plugins and calls webhooks, allocation allocates cluster IPs and node ports, quota counts the usage
//     of ResourceQuotas, encryption encrypts at rest, listcache keeps encodings of listed objects, crds serves custom resources.
//   - coreapi itself assembles codecs, storage in etcd, the server and its in-process client.
//
// Imports point downward only: coreapi, lists of groups, groups, registry, shared parts (TestImportsInsideGoDownward).
//
// The same handler serves custom resource definitions and custom resources (package crds), selected by group-version. A
// definition cannot take a built-in group-version. The served resources therefore change while the server runs: Discovery,
// GroupVersions and Documents return the current state, and Changed signals a change.
//
// # Requirements for requests
//
// The chain in internal/server runs before the handler and stores its results in the request's context. The handler does not
// repeat these steps or checks:
//
//   - RequestInfo (apirequest.WithRequestInfo): without it every request is refused with 500;
//   - the user (apirequest.WithUser), authenticated and already authorized for the request itself;
//   - an audit context (audit.WithAuditContext): without it every patch panics in k8s.io/apiserver;
//   - a deadline for every request that is not long-running (request.LongRunning), because storage has no other timeout;
//   - a warning recorder (filters.WithWarningRecorder), or warnings are lost;
//   - the time of arrival (apirequest.WithReceivedTimestamp) and latency trackers (apirequest.WithLatencyTrackers), which only
//     metrics and traces read.
//
// The ResponseWriter must implement http.Flusher, directly or through Unwrap, or watch events are not delivered. Responses have
// no Cache-Control header; the chain sets "no-cache, private".
//
// The handler serves the paths at and below /api/v1 and /apis/<group>/<version>. internal/discovery serves the documents above
// them (/api, /apis, /apis/<group>), which merge local and remote groups. It gets the local part from Discovery.
//
// ClientConfig uses a separate chain with a given user, without authentication and authorization. It must stay inside the
// process.
package coreapi
