// Package coreapi is the local groups and CRDs, as an http.Handler and an in-process client.
//
// The groups of the front door itself are served by the REST machinery of k8s.io/apiserver over one etcd client: the
// machinery brings patches, apply, dry runs, the watch cache and Table; the kinds, their columns, defaults, validation
// and the way they are stored are ours. Each v1 type is its own internal version, so nothing is converted between the
// wire and etcd; the exceptions are Event, which two groups serve (kinds/events), and HorizontalPodAutoscaler, which two
// versions show (kinds/autoscaling).
//
// # Where a kind is
//
//   - kinds/<group>/<kind>.go is all of a kind: its descriptor (registry.Resource) with columns, defaults, validation, field
//     selectors, subresources, scale, samples for tests, and what runtime-config may do with it. A large kind has several
//     files that begin with its name. group.go lists the kinds of the group. A new kind is a new file, a line in group.go, and
//     go generate for the OpenAPI documents.
//   - kinds lists the groups that every front door has, kinds/cluster those that only clusters with nodes need. The aggregator
//     imports the latter in one line, which can be left out.
//   - registry is what kinds share: Resource and Group, strategies, storage and its subresources, and Environment, which is
//     what kinds may use of the server.
//   - validate, columns, defaults and selectable are the parts from which kinds of several groups are made, such as the
//     validation of metadata and pod templates. They know no table of kinds.
//   - coreapi itself assembles: codecs, storage in etcd, the server and its in-process client.
//
// Imports go downward only: coreapi, lists of groups, groups, registry, shared parts (TestImportsInsideGoDownward).
//
// Definitions of custom resources and what they define (sub-package crds) are served by the same handler, chosen by
// group-version; a definition cannot take a group-version that is built in. What is served therefore changes while the server
// runs: Discovery, GroupVersions and Documents are of the moment, and Changed says when they change.
//
// # What the handler expects of a request
//
// The chain in internal/server runs before the handler and puts what it found into the request's context. The handler
// does none of this itself, and does not check it twice:
//
//   - RequestInfo (apirequest.WithRequestInfo): without it every request is refused with 500;
//   - the user (apirequest.WithUser), authenticated and already authorized for the request itself;
//   - an audit context (audit.WithAuditContext): without it every patch panics in the library;
//   - a deadline on everything that is not long-running (request.LongRunning), because storage waits as long as it may;
//   - a warning recorder (filters.WithWarningRecorder), or warnings are lost;
//   - the time of arrival (apirequest.WithReceivedTimestamp) and latency trackers (apirequest.WithLatencyTrackers),
//     which only metrics and traces read.
//
// The ResponseWriter must be able to flush, itself or through Unwrap, or watches reach nobody. Answers carry no
// Cache-Control header; the chain sets "no-cache, private".
//
// The handler serves /api/v1, /apis/<group>/<version> and what is below them. The documents above (/api, /apis,
// /apis/<group>) merge local and remote groups and are internal/discovery's; Discovery is what it needs of us.
//
// ClientConfig has a chain of its own, with a user that is given and not authenticated: it is not authorized and must
// stay inside the process.
package coreapi
