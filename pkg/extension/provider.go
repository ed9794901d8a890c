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

// Lister is the only interface that a provider must implement.
type Lister[T any] interface {
	// List returns the objects that q selects. It may return more, because the host filters the result. An error that carries
	// a Status (k8s.io/apimachinery/pkg/api/errors) is returned to the client unchanged, any other error as 500. The host
	// does not modify the result, so a provider may return a slice that it keeps. List is called concurrently.
	List(ctx context.Context, q Query) ([]T, error)
}

// ListFunc is a function that implements Lister.
type ListFunc[T any] func(ctx context.Context, q Query) ([]T, error)

// List calls f.
func (f ListFunc[T]) List(ctx context.Context, q Query) ([]T, error) { return f(ctx, q) }

// Getter is implemented by providers that can find one object more cheaply than by listing.
type Getter[T any] interface {
	// Get returns the object named by q.Namespace and q.Name, or an error that matches ErrNotFound (errors.Is).
	Get(ctx context.Context, q Query) (T, error)
}

// Creator is implemented by providers that can create objects.
type Creator[T any] interface {
	// Create creates object and returns it as created. The host has checked that it has the right kind, is in q.Namespace and
	// has a name (optional with Definition.Nameless). q.User is the caller. If an object of that name exists, Create returns
	// ErrExists or apierrors.NewAlreadyExists; if the host generated the name, it then retries with another one.
	Create(ctx context.Context, q Query, object T) (T, error)
}

// Updater is implemented by providers that can update objects. The host uses it for patches too.
type Updater[T any] interface {
	// Update replaces the object named by q.Namespace and q.Name by object and returns the result, or an error that matches
	// ErrNotFound. The host has compared the client's resourceVersion with the current one, and serializes the writes of one
	// object. If the source has other writers, Update returns apierrors.NewConflict when it detects a concurrent change.
	// object carries the resourceVersion that the provider itself set, if it set one.
	Update(ctx context.Context, q Query, object T) (T, error)
}

// Deleter is implemented by providers that can delete objects, individually or by selector.
type Deleter[T any] interface {
	// Delete deletes the object named by q.Namespace and q.Name and returns its last state, or an error that matches
	// ErrNotFound. If the result has a deletionTimestamp, the deletion counts as in progress.
	Delete(ctx context.Context, q Query) (T, error)
}

// Connecter is implemented by providers with connect subresources, such as proxies, consoles and logs.
type Connecter[T any] interface {
	// Connect serves one request, of any method, for the subresource q.Subresource of the object named by q.Namespace and
	// q.Name. q.Rest is the rest of the path. w can be hijacked over HTTP/1.1. ctx is the context of r and ends when the
	// server must stop. The host sets no deadline and no limit on r.Body. Use WriteError to return an error.
	Connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request)
}

// Tabler is implemented by providers with columns that depend on the listed objects.
type Tabler[T any] interface {
	// Columns returns the columns for items. items may be empty.
	Columns(items []T) []Column[T]
}

// Errors that providers return. The host converts them to a Status.
var (
	// ErrNotFound is returned by Get, Update and Delete if the object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned by Create if an object of the same name exists.
	ErrExists = errors.New("already exists")
)

// Query describes one request to a provider. A provider may ignore the selectors, because the host filters the result.
// Evaluating them saves work.
type Query struct {
	// Namespace restricts the result to one namespace. If empty, all namespaces match. It is always empty for cluster-scoped
	// resources.
	Namespace string
	// Name restricts the result to one object: for a get, or for the field selector metadata.name=<name>. If empty, all
	// objects match.
	Name string
	// User is the caller. It is set for writes and connect requests, and for reads of PerCaller resources. For other reads it
	// is nil, because their results are shared between callers.
	User user.Info
	// Labels and Fields are never nil.
	Labels labels.Selector
	Fields fields.Selector

	// DryRun requests a write that validates everything and changes nothing. It is only set if Definition.DryRun is true.
	DryRun bool
	// FieldManager is the name that the client gives itself. May be empty.
	FieldManager string
	// Deletion contains the options of a delete. It is nil for other verbs. The host has checked the preconditions.
	Deletion *metav1.DeleteOptions
	// Subresource and Rest specify the connection: "proxy" and "x/y" for nodes/a/proxy/x/y.
	Subresource, Rest string
}

func everything() Query {
	return Query{Labels: labels.Everything(), Fields: fields.Everything()}
}
