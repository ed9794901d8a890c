// Package projects is a view of namespaces that shows each caller their own, and lets them ask for new ones.
//
// Kubernetes lists all namespaces or none: who works in three of them cannot find out which. A Project is a Namespace
// that the caller may get; list and watch show those, and a ProjectRequest makes a namespace whose admin the caller is.
// It is OpenShift's project API, stored nowhere.
//
// # What is trusted
//
// Query.User, which the host has authenticated. Nothing in a request's body but a name and two texts for people: labels
// and annotations are not taken over, since labels of a namespace switch policies (pod security) off.
//
// # What is checked twice
//
// The host has asked whether the caller may use this API at all. Whether they may see a namespace, or delete it, is
// asked of the front door about the Namespace itself, with its RBAC and under the caller's name; the server's own
// rights, which are larger, decide nothing. When that cannot be asked the answer is an error and never a shorter list: a
// watch would report what is missing as deleted.
//
// # What is promised
//
// What one caller sees is never computed from what another was shown: the only thing that callers share is the list of
// all namespaces, and verdicts are remembered under everything that authorization can see of a caller. A namespace that
// exists is never given to anybody: creating is one POST, and of two callers who want one name the second gets a 409.
// When a caller cannot be made admin, the namespace that was just made is deleted again, by its UID.
package projects
