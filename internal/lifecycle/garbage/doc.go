// Package garbage is the garbage collector: it deletes objects whose owners no longer exist.
//
// An object names its owners in metadata.ownerReferences. When the last of them no longer exists, the object is deleted.
// A deletion with propagationPolicy Foreground waits for the dependents, one with Orphan keeps them; both are finalizers
// that the API server sets and that are removed here. On the wire this is what kube-controller-manager does; it differs in
// how certain it has to be.
//
// # When an owner is gone
//
// A wrong deletion cannot be undone, a late one can. An owner counts as gone only when all of this holds:
//
//   - discovery is complete, the group-version of the reference is in it, and its backend answers at this moment. A
//     group-version that is dead, unknown or missing says nothing about its objects (kubernetes/kubernetes#104342, #88097);
//   - that group-version serves the kind;
//   - when our own etcd has objects of the kind that an extension server hides, the owner is not among them, by a live GET
//     and by their watch;
//   - a live GET, made now, was answered with a Status that says NotFound of this very object, or with an object of
//     another UID. 503, 403, a 404 from a proxy, and an object that was not requested prove nothing;
//   - no watch knows an object with the UID of the reference under another name, kind or namespace. Such a reference is
//     wrong, which an Event reports, but its owner exists;
//   - the watch of the owner's kind, when the kind can be watched, has been complete once;
//   - when the owner is at a backend and not in our own etcd, the backend answered so twice, with a pause between. A server
//     that starts with an empty cache answers NotFound to everything for a moment.
//
// Otherwise the object is put aside until its group-version changes or can take another request, and nothing else waits
// for it. A deletion carries the UID and the resourceVersion that were checked, so that an object that changed meanwhile is
// checked again.
//
// # State
//
// One monitor per resource lists and watches metadata and feeds the graph, which keeps of each object who it is, who owns
// it, and whether it waits for dependents. Dependents are found by the UID of their owner, so that unknown owners need no
// virtual nodes. A monitor stays while its backend is dead, and ends with the registration or the definition. Nothing
// waits for all monitors: an owner in one that has never been complete is looked up live, and exists or is undecided. Only
// Orphan waits, because it could not keep dependents that it has not found.
//
// Requests are bounded: a fixed number of workers, few of them in one group-version at a time, a deadline on each request,
// and a pause for a group-version that does not answer.
package garbage
