// Package garbage is the garbage collector: what belongs to an object goes when the object has gone.
//
// An object names its owners in metadata.ownerReferences. When the last of them no longer exists, the object is deleted.
// A deletion with propagationPolicy Foreground waits for what it takes along, one with Orphan lets it stay; both are
// finalizers that the API server sets and that are removed here. On the wire all of it is what kube-controller-manager
// does; what differs is how sure it has to be.
//
// # When an owner is gone
//
// To delete wrongly cannot be undone, to delete late can. An owner counts as gone only when all of this holds:
//
//   - discovery is complete, the group-version of the reference is in it, and its backend answers at this moment. A
//     group-version that is dead, unknown or missing says nothing about its objects (kubernetes/kubernetes#104342, #88097);
//   - that group-version serves the kind;
//   - a live GET, made now, was answered with a Status that says NotFound of this very object, or with an object of
//     another UID. 503, 403, a 404 that some proxy wrote, and an object that is not what was asked for, say nothing;
//   - no watch knows an object with the UID of the reference under another name, kind or namespace. Such a reference is
//     wrong, which is told in an Event, but its owner lives;
//   - the watch of the owner's kind, when the kind can be watched, has been complete once;
//   - when a backend said so and not our own etcd, it said so twice, with a pause between. A server that starts with an
//     empty cache says NotFound of everything for a moment.
//
// Everything else is "not now": the object is put aside until its group-version changes or has room for a question, and
// nothing else waits for it. A deletion carries the UID and the resourceVersion that were judged, so that an object that
// was changed meanwhile is judged again.
//
// # What is remembered
//
// One monitor per resource lists and watches metadata and feeds the graph, which keeps of each object who it is, who owns
// it, and whether it waits for dependents. Dependents are found by the UID of their owner, so that owners nobody has seen
// need no place holders. A monitor stays while its backend is dead, and goes with the registration or the definition.
// Nothing waits for all monitors: an owner in one that has never been complete is looked up live, and lives or is not
// judged. Only the promise of Orphan waits, because dependents that were not found could not be spared.
//
// Requests are bounded: so many workers, few of them in one group-version at a time, a deadline on each request, and a
// group-version that does not answer is left alone for a while.
package garbage
