package main

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// facts are what a storage is asked while its routes are made. The interfaces that say which verbs there are lie one
// level deeper than facts in the types below, are nil, and are never called: there is no request.
type facts struct {
	object, list runtime.Object
	kind         schema.GroupVersionKind
	namespaced   bool
	singular     string
}

func (f facts) New() runtime.Object                                          { return f.object }
func (f facts) NewList() runtime.Object                                      { return f.list }
func (f facts) Destroy()                                                     {}
func (f facts) NamespaceScoped() bool                                        { return f.namespaced }
func (f facts) GetSingularName() string                                      { return f.singular }
func (f facts) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return f.kind }

type (
	stored struct{ rest.StandardStorage }
	kept   struct { // stored, and not deleted with its like: namespaces
		rest.Getter
		rest.Lister
		rest.CreaterUpdater
		rest.GracefulDeleter
		rest.Watcher
	}
	patched struct{ rest.Patcher }
	updated struct{ rest.Updater }
	read    struct{ rest.Getter }
	listed  struct { // found out and not stored: componentstatuses
		rest.Getter
		rest.Lister
	}
	posted struct{ rest.Creater }
	named  struct{ rest.NamedCreater }
)

// storageFor returns a storage whose routes are those of the verbs. A set of verbs that no entry of the table has yet
// needs a case of its own.
func storageFor(verbs []string, subresource bool, f facts) (rest.Storage, error) {
	switch sorted := slices.Sorted(slices.Values(verbs)); strings.Join(sorted, " ") {
	case "create delete deletecollection get list patch update watch":
		return struct {
			facts
			stored
		}{facts: f}, nil
	case "create delete get list patch update watch":
		return struct {
			facts
			kept
		}{facts: f}, nil
	case "get patch update":
		return struct {
			facts
			patched
		}{facts: f}, nil
	case "update":
		return struct {
			facts
			updated
		}{facts: f}, nil
	case "get":
		return struct {
			facts
			read
		}{facts: f}, nil
	case "get list":
		return struct {
			facts
			listed
		}{facts: f}, nil
	case "create":
		if subresource {
			return struct {
				facts
				named
			}{facts: f}, nil
		}
		return struct {
			facts
			posted
		}{facts: f}, nil
	default:
		return nil, fmt.Errorf("no storage has exactly the verbs %v: add a case to storageFor", sorted)
	}
}

func factsOf(scheme *runtime.Scheme, gv schema.GroupVersion, kind *metav1.GroupVersionKind, namespaced bool, singular string) (facts, error) {
	if kind == nil || kind.Kind == "" {
		return facts{}, fmt.Errorf("it has no kind")
	}
	f := facts{kind: schema.GroupVersionKind(*kind), namespaced: namespaced, singular: singular}
	if f.kind.Group == "" && f.kind.Version == "" {
		f.kind = gv.WithKind(kind.Kind)
	}
	var err error
	if f.object, err = scheme.New(f.kind); err != nil {
		return facts{}, err
	}
	if list := f.kind.GroupVersion().WithKind(f.kind.Kind + "List"); scheme.Recognizes(list) {
		f.list, err = scheme.New(list)
	}
	return f, err
}
