// Package projects serves the namespaces that each caller may see, and lets callers request new ones.
//
// Kubernetes lists all namespaces or none, so a user with access to three of them cannot list these three. A Project is a
// Namespace that the caller may get. List and watch return only these, and a ProjectRequest creates a namespace with the
// caller as its admin. The API equals OpenShift's project API and is not stored.
//
// # Trust
//
// The package trusts Query.User, which the host has authenticated. From the body of a request it uses only the name and two
// descriptive texts. It rejects labels and annotations, because labels of a namespace can disable policies (pod security).
//
// # Authorization
//
// The host has checked whether the caller may use this API. For access to a namespace, the package sends a
// SubjectAccessReview for the Namespace and the caller to the front door, which applies its RBAC rules. The server's own
// permissions are larger and do not affect the result. If the review cannot be completed, the request returns an error
// instead of a shorter list, because a watch would report the missing projects as deleted.
//
// # Guarantees
//
// The result for one caller never depends on the results of other callers. Callers share only the list of all namespaces, and
// cached decisions are keyed by all attributes of a caller that authorization can use. An existing namespace is never given
// to a caller: creation is one POST, and if two callers request the same name, the second one gets a 409. If a caller cannot
// be made admin, the new namespace is deleted again, by its UID.
package projects
