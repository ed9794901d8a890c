// Package register is how an extension server introduces itself to a front door: a Service to be reached by, and an
// APIService for each group-version, written by server-side apply through the public API or printed as manifests.
package registration
