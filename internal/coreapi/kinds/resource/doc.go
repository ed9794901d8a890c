// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen-scheme-registry=nil

// Package resource has the kinds of resource.k8s.io, a file for each: the devices of nodes, classes of them, and claims on
// them.
//
// Upstream states most of the rules of these kinds in tags of their Go types. Here, as there, validation-gen makes
// zz_generated.validations.go of them; what the tags cannot say is handwritten beside it. See rules.go.
package resource

//go:generate go run ./gen
