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

// A namespace can be deleted and recreated under the same name while a webhook, a policy, a quota or a slow body delays a
// request for an object in it. The request was authorized for the namespace that existed when it began. Therefore each writing
// request stores that namespace in its context, and each write to etcd requires it as a condition: see namespacetxn.go.

// namespaceAtStart is the state of a request's namespace directly after authorization. It is immutable.
type namespaceAtStart struct {
	name string
	// now reports that the namespace was read from etcd, not from the watch cache.
	now bool
	// revision is a revision at which the namespace had this state, or 0 if it did not exist.
	revision    int64
	uid         types.UID
	terminating bool
	// err is the error of the read. If it is set, only name is valid.
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

// isTerminatingNamespace reports whether ns has been deleted. The delete request sets both fields in one write.
func isTerminatingNamespace(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

type namespaceAtStartKey struct{}

// namespaceAtStartOf returns nil for a write that does not belong to a request in that namespace.
func namespaceAtStartOf(ctx context.Context, name string) *namespaceAtStart {
	if s, ok := ctx.Value(namespaceAtStartKey{}).(*namespaceAtStart); ok && s.name == name {
		return s
	}
	return nil
}

// rememberNamespace stores the namespace of each writing request in its context. It runs before every handler that reads the
// body.
//
// For a POST it reads the namespace from etcd, once: the plugin NamespaceLifecycle, which needs the same read, uses this
// result. Other writes rarely create objects. They use the watch cache, unless it reports the namespace as terminating or
// missing: the cache may be behind, and a new namespace may have the name. If the cache has missed the entire deletion of a
// namespace, a valid write is refused with 409, but an invalid one never succeeds.
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

// hasNamespace reports whether a request is for objects in a namespace. It returns false for namespaces themselves, and for
// reviews, which store nothing and must not reveal whether a namespace exists.
func hasNamespace(info *apirequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Namespace != "" && !(info.APIGroup == "" && info.Resource == "namespaces") &&
		info.APIGroup != authorizationv1.GroupName
}

// namespaceOfCreate returns the getter for the plugin NamespaceLifecycle. For a POST it returns the namespace at the start of
// the request. For another write that creates an object it returns the current namespace, if that has the same UID. now reads
// from etcd.
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

// sameNamespace returns an error if the namespace is not the one of the request's start. It is for data that a request returns
// but does not store: objects read in the namespace before the call then belong to that namespace too.
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
