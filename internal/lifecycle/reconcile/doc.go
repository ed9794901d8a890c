// Package reconcile is what the controllers have in common: the work queue loop, the election, and questions about
// objects.
package reconcile
