// Package clients has the typed clients and informers of Kubernetes' own groups that this program uses, and no others. Some
// libraries look methods up by name, so the linker cannot leave out unused methods: client-go's clientset and informer
// factory would add 12 MB to the binary (see ARCHITECTURE.md).
package clients
