// Package clients is the typed clients and informers of Kubernetes' own groups that this program uses, and no others.
// The linker cannot leave out the methods of what a program links, because libraries that it stands on look methods up
// by name; all groups in all their versions, each kind with a client, an informer and a lister, weigh 12 MB.
package clients
