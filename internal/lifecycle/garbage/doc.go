// Package garbage implements the garbage collector, which deletes objects after their owners have been deleted.
//
// An object lists its owners in metadata.ownerReferences. It is deleted when none of them exists. A deletion with
// propagationPolicy Foreground waits for the dependents, a deletion with Orphan keeps them. Both are finalizers that the API
// server sets and this package removes. The API behavior equals kube-controller-manager's. The difference is the certainty
// required before a deletion.
//
// # When an owner counts as deleted
//
// A wrong deletion cannot be undone, a late one is harmless. An owner counts as deleted only if all of these conditions hold:
//
//   - Discovery is complete and contains the group-version of the reference, and its backend responds at this moment. If a
//     group-version is unavailable, unknown or missing, the state of its objects is unknown
//     (kubernetes/kubernetes#104342, #88097).
//   - The group-version serves the kind.
//   - If the local etcd contains objects of the kind that an extension server hides, the owner is not among them, according
//     to a live GET and to their watch.
//   - A live GET, made now, returned a Status with reason NotFound for exactly this object, or an object with another UID.
//     503, 403, a 404 from a proxy, and an object that was not requested prove nothing.
//   - No watch contains an object with the UID of the reference under another name, kind or namespace. Such a reference is
//     wrong, and an Event reports it, but its owner exists.
//   - The watch of the owner's kind, if the kind can be watched, has been complete once.
//   - If the owner is at a backend and not in the local etcd, the backend returned this result twice, with a pause in
//     between. A server that starts with an empty cache returns NotFound for every object for a moment.
//
// Otherwise the object is put aside until its group-version changes or can take another request. It does not block other
// objects. A deletion carries the UID and the resource version that were checked, so that an object that changed in the
// meantime is checked again.
//
// # State
//
// One monitor per resource lists and watches metadata and feeds the graph. For each object, the graph contains its identity,
// its owners, and whether it waits for dependents. Dependents are found by the UID of their owner, so unknown owners do not
// need virtual nodes. A monitor continues while its backend is unavailable, and ends when its APIService or
// CustomResourceDefinition is deleted. If the monitor of an owner's kind has never been complete, the owner is looked up live,
// and either exists or is undecided. Only Orphan waits for all monitors, because it could not keep dependents that it has not
// found.
//
// Requests are bounded by a fixed number of workers, a small number of concurrent requests per group-version, a deadline on
// each request, and a pause for a group-version that does not respond.
package garbage
