// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1
// +k8s:validation-gen-scheme-registry=nil

// Package resource defines the kinds of the API group resource.k8s.io, one per file: devices of nodes, device classes, and
// claims.
//
// Upstream declares most of the rules of these kinds as tags of their Go types. As in upstream, validation-gen generates
// zz_generated.validations.go from the tags. The other rules are handwritten; see rules.go.
package resource

//go:generate go run ./gen
