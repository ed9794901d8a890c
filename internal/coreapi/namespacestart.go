package coreapi

import (
	"context"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"portico.dev/internal/coreapi/registry"
)

// A namespace can go, and another get its name, while a request for something in it is held by a webhook, a policy, a
// quota, or a body that comes slowly. What the request may, was decided about the namespace that was there when it began. So
// each writing request remembers that namespace, and each write to etcd has it as a condition: namespacetxn.go.

// namespaceAtStart is the namespace of a request as it was when the request had been authorised. It is not changed.
type namespaceAtStart struct {
	name string
	// now says that it was read from etcd, and not from the watch cache.
	now bool
	// revision is one at which the namespace was like that; 0: there was none of that name.
	revision    int64
	uid         types.UID
	terminating bool
	// err is why none of this is known.
	err error
	obj *corev1.Namespace
}

func startedIn(name string, ns *corev1.Namespace, now bool) (*namespaceAtStart, error) {
	revision, err := storage.APIObjectVersioner{}.ObjectResourceVersion(ns)
	if err != nil {
		return nil, fmt.Errorf("version of namespace %s: %w", name, err)
	}
	return &namespaceAtStart{
		name: name, now: now, revision: int64(revision), uid: ns.UID, terminating: isTerminatingNamespace(ns), obj: ns,
	}, nil
}

// isTerminatingNamespace is true from the write that deletes a namespace on. Both are set by it.
func isTerminatingNamespace(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

type namespaceAtStartKey struct{}

// namespaceAtStartOf is nil for a write that no request in that namespace asked for.
func namespaceAtStartOf(ctx context.Context, name string) *namespaceAtStart {
	if s, ok := ctx.Value(namespaceAtStartKey{}).(*namespaceAtStart); ok && s.name == name {
		return s
	}
	return nil
}

// rememberNamespace puts the namespace of each request that writes into its context. It stands before whatever reads the
// body.
//
// For a POST it is read from etcd, once: the plugin NamespaceLifecycle, which asks for just that, is answered from here. Other
// writes seldom create. For them the watch cache is asked, unless it says that the namespace is going or not there: it may be
// behind, and another may have the name. A cache that is so far behind that it has missed all of a namespace's end lets such
// a write be refused with 409, and never lets one through.
func rememberNamespace(namespaces *registry.REST, next http.Handler) http.Handler {
	read := func(ctx context.Context, name string, version string) *namespaceAtStart {
		obj, err := namespaces.Get(registry.ReadContext(ctx, "", "namespaces", "", name), name, &metav1.GetOptions{ResourceVersion: version})
		switch {
		case apierrors.IsNotFound(err):
			return &namespaceAtStart{name: name, now: version == ""}
		case err != nil:
			return &namespaceAtStart{name: name, err: err}
		}
		s, err := startedIn(name, obj.(*corev1.Namespace), version == "")
		if err != nil {
			return &namespaceAtStart{name: name, err: apierrors.NewInternalError(err)}
		}
		return s
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, ok := apirequest.RequestInfoFrom(ctx)
		if ok && hasNamespace(info) {
			var s *namespaceAtStart
			switch info.Verb {
			case "create":
				s = read(ctx, info.Namespace, "")
			case "update", "patch", "delete", "deletecollection":
				if s = read(ctx, info.Namespace, "0"); s.err != nil || s.revision == 0 || s.terminating {
					s = read(ctx, info.Namespace, "")
				}
			}
			if s != nil {
				r = r.WithContext(context.WithValue(ctx, namespaceAtStartKey{}, s))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hasNamespace leaves out namespaces themselves, and reviews, which store nothing and must not tell whether there is one.
func hasNamespace(info *apirequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Namespace != "" && !(info.APIGroup == "" && info.Resource == "namespaces") &&
		info.APIGroup != authorizationv1.GroupName
}

// namespaceOfCreate is what the plugin NamespaceLifecycle goes by: for a POST the namespace as it was at the start of the
// request, for a write that turns out to create the namespace as it is, if it is the one of the start. now reads from etcd.
func namespaceOfCreate(now namespaceGetter) namespaceGetter {
	return func(ctx context.Context, name string) (*corev1.Namespace, error) {
		s := namespaceAtStartOf(ctx, name)
		switch {
		case s == nil:
			return now(ctx, name)
		case s.err != nil:
			return nil, s.err
		case s.revision == 0:
			return nil, namespaceNotFound(name)
		case s.now:
			return s.obj, nil
		}
		ns, err := now(ctx, name)
		if err == nil && ns.UID != s.uid {
			return nil, namespaceNotFound(name)
		}
		return ns, err
	}
}

// sameNamespace is for what a request answers with and does not store: the namespace must be the one of its start. Whatever was
// read in it before this was asked was of that one too.
func sameNamespace(ctx context.Context, name string, now namespaceGetter) error {
	s := namespaceAtStartOf(ctx, name)
	if s == nil {
		return nil
	}
	if s.err != nil {
		return s.err
	}
	ns, err := now(ctx, name)
	if err != nil {
		return err
	}
	if ns.UID != s.uid {
		return namespaceNotFound(name)
	}
	return nil
}

func namespaceNotFound(name string) error {
	return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}
