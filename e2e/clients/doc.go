// Package clients runs programs that others' libraries make, unmodified, against a front door: an operator of
// controller-runtime, one of client-go that is a service account, shared informers of every sort, Helm, and kubectl. Then it does
// to the front door what happens to front doors, and sees that each goes on.
//
// The programs are in the directories below; those that need more than our own module does are modules of their own.
package clients
