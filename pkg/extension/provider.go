package extension

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Lister is all that a provider must implement.
type Lister[T any] interface {
	// List returns the objects that q asks for; it may return more, the host filters. An error that carries a Status
	// (k8s.io/apimachinery/pkg/api/errors) reaches the client as it is, any other as 500. The host does not change
	// what it is given, so a provider may return a slice that it keeps.
	List(ctx context.Context, q Query) ([]T, error)
}

// ListFunc makes a Lister of a function.
type ListFunc[T any] func(ctx context.Context, q Query) ([]T, error)

// List calls f.
func (f ListFunc[T]) List(ctx context.Context, q Query) ([]T, error) { return f(ctx, q) }

// Getter is implemented by providers that find one object more cheaply than by listing.
type Getter[T any] interface {
	// Get returns the object that q.Namespace and q.Name name, or an error for which ErrNotFound holds (errors.Is).
	Get(ctx context.Context, q Query) (T, error)
}

// Creator is implemented by providers in which objects can be made.
type Creator[T any] interface {
	// Create makes object and returns it as it came to be. The host has checked that it is of the right kind, lies in
	// q.Namespace and has a name (Definition.Nameless: may have); q.User is who asks. It returns
	// ErrExists (or apierrors.NewAlreadyExists) when there is one of that name: the host then tries another, if it made
	// the name.
	Create(ctx context.Context, q Query, object T) (T, error)
}

// Updater is implemented by providers whose objects can be changed. It serves patches too.
type Updater[T any] interface {
	// Update makes the object that q.Namespace and q.Name name look like object and returns it as it came to be, or an
	// error for which ErrNotFound holds. The host has compared the resourceVersion that the client gave with the one that
	// it last showed, and lets one write of an object follow the other; whoever shares the source with others returns
	// apierrors.NewConflict when they were faster. object carries the resourceVersion that the provider itself gave to
	// the object, if it gave one.
	Update(ctx context.Context, q Query, object T) (T, error)
}

// Deleter is implemented by providers whose objects can be deleted, one by one or by a selection.
type Deleter[T any] interface {
	// Delete removes the object that q.Namespace and q.Name name and returns it as it last was, or an error for which
	// ErrNotFound holds. An object that is returned with a deletionTimestamp counts as still going.
	Delete(ctx context.Context, q Query) (T, error)
}

// Connecter is implemented by providers with connect subresources: proxies, consoles, logs.
type Connecter[T any] interface {
	// Connect serves one request, of any method, to the subresource q.Subresource of the object that q.Namespace and
	// q.Name name. q.Rest is what follows in the path. w can be hijacked over HTTP/1.1; ctx, which is r's, ends when the
	// server must; no deadline and no limit is set on r.Body. WriteError answers with an error.
	Connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request)
}

// Tabler is implemented by providers whose columns depend on what they list.
type Tabler[T any] interface {
	// Columns returns the columns for items, which may be empty.
	Columns(items []T) []Column[T]
}

// What providers return of an object that is or is not there. The host makes a Status of it.
var (
	// ErrNotFound is for Get, Update and Delete: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrExists is for Create: there is one of that name.
	ErrExists = errors.New("already exists")
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
