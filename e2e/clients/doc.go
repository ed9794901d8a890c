// Package clients runs unmodified programs built with third-party libraries against a front door: an operator with
// controller-runtime, one with client-go as a service account, shared informers of every kind, Helm, and kubectl. It
// injects faults that occur in front doors, and checks that each program continues to work.
//
// The programs are in the subdirectories. Programs with additional requirements are separate modules.
package clients
