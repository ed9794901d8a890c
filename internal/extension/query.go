package extension

import (
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
	// User is the caller, set for resources defined PerCaller and nil for all others.
	User user.Info
	// Labels and Fields are never nil.
	Labels labels.Selector
	Fields fields.Selector
}

func everything() Query {
	return Query{Labels: labels.Everything(), Fields: fields.Everything()}
}
