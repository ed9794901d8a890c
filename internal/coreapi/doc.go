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
//   - kinds/<group>/<kind>.go is all of a kind: its registry.Resource, columns, defaults, validation, field selectors and
//     what its strategy does besides; a large kind has several files that begin with its name. group.go lists the kinds of
//     the group, and kinds.All the groups. A new kind is a new file and a line in group.go.
//   - registry is what kinds share: Resource and Group, the strategies, the storage of a resource and its status.
//   - validate, columns, defaults and selectable are the parts from which kinds of several groups are made, such as the
//     validation of metadata and pod templates. They know no table of kinds.
//   - coreapi itself assembles: scheme, storage, the server and its in-process client. The subresources of pods, Services
//     and namespaces, scales, tokens and reviews are still here and not with their kinds.
//
// Imports go downward only: coreapi, kinds, the groups, registry, the shared parts. storage, node and certificates are
// needed only where there are nodes; nothing but kinds.All and the assembly of certificates imports them.
//
// Definitions of custom resources and what they define (sub-package crds) are served by the same handler, chosen by
// group-version; a definition cannot take a group-version of the table. What is served therefore changes while the server
// runs: Discovery, GroupVersions and Documents are of the moment, and Changed says when to look again.
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
// ClientConfig has a chain of its own, with a user that is given and not authenticated: it is the key to the house and
// stays inside the process.
package coreapi
