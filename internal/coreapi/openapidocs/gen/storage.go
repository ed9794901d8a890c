package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// facts answers the calls to a storage during route installation. In the types below, the interfaces that determine the verbs
// are embedded one level deeper than facts. They are nil and never called, because no request is sent.
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
	kept   struct { // stored, but without deletecollection: namespaces
		rest.Getter
		rest.Lister
		rest.CreaterUpdater
		rest.GracefulDeleter
		rest.Watcher
	}
	patched struct{ rest.Patcher }
	updated struct{ rest.Updater }
	read    struct{ rest.Getter }
	listed  struct { // computed, not stored: componentstatuses
		rest.Getter
		rest.Lister
	}
	posted struct{ rest.Creater }
	named  struct{ rest.NamedCreater }
)

// connected is a subresource that forwards requests: exec, attach and portforward for two methods, proxy for all.
type connected struct {
	facts
	methods []string
	path    string // name of the options field for the rest of the path, or empty
}

func (c connected) ConnectMethods() []string { return c.methods }

func (c connected) NewConnectOptions() (runtime.Object, bool, string) {
	return c.object, c.path != "", c.path
}

func (c connected) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return nil, errors.New("there is no request")
}

// logs is pods/log.
type logs struct{ facts }

func (logs) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}
func (logs) ProducesMIMETypes(string) []string { return []string{"text/plain"} }
func (logs) ProducesObject(string) any         { return "" }
func (logs) Get(context.Context, string, runtime.Object) (runtime.Object, error) {
	return nil, errors.New("there is no request")
}

// storageFor returns a storage that has exactly the given verbs. A new set of verbs needs a new case.
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
	case "create get":
		return connected{facts: f, methods: []string{"GET", "POST"}}, nil
	case "create delete get patch update":
		return connected{facts: f, methods: []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}, path: "path"}, nil
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
