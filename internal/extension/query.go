package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Query is what one request asks of a provider. A provider that ignores the selectors is correct: the host filters
// what it is given. One that heeds them saves work.
type Query struct {
	// Namespace limits the answer to one namespace. Empty: all, and always empty for cluster-scoped resources.
	Namespace string
	// Name limits the answer to one object: a get, or the field selector metadata.name=<name>. Empty: all.
	Name string
	// User is the caller: always set for writes and connections, and for reads of resources defined PerCaller. For other
	// reads it is nil, since what they answer is shared.
	User user.Info
	// Labels and Fields are never nil.
	Labels labels.Selector
	Fields fields.Selector

	// DryRun asks a write to check everything and change nothing. Only resources whose Definition says DryRun are asked.
	DryRun bool
	// FieldManager names the program that writes, as it calls itself. May be empty.
	FieldManager string
	// Deletion is how a delete is meant, nil for other verbs. The host has checked its preconditions.
	Deletion *metav1.DeleteOptions
	// Subresource and Rest say which connection is wanted: nodes/a/proxy/x/y is "proxy" and "x/y".
	Subresource, Rest string
}

func everything() Query {
	return Query{Labels: labels.Everything(), Fields: fields.Everything()}
}
