package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxResources bounds the number of resources of a group-version that each check uses.
const maxResources = 8

// examination is the examination of one group-version.
type examination struct {
	cfg Config
	gv  schema.GroupVersion
	// ask sends the requests of the checks. front is the API server, or nil.
	ask, front *caller
	// server is the extension server itself, nil if it cannot be reached. whyNoServer is the reason.
	server      *Server
	whyNoServer string
	// directly is true if ask reaches the server itself, so that /apis and /openapi are the server's.
	directly bool

	// legacy is the response from which resources were read. all includes subresources.
	legacy         answer
	all, resources []metav1.APIResource
}

// discover reads the list of resources that every check uses.
func (x *examination) discover(ctx context.Context) error {
	x.legacy = x.ask.get(ctx, x.root())
	if x.legacy.err != nil {
		return fmt.Errorf("reach the server: %w", x.legacy.err)
	}
	var list metav1.APIResourceList
	if x.legacy.into(&list) != nil {
		return nil // the first check reports the error
	}
	x.all = list.APIResources
	for _, r := range x.all {
		if !strings.Contains(r.Name, "/") {
			x.resources = append(x.resources, r)
		}
	}
	return nil
}

func (x *examination) root() string { return "/apis/" + x.gv.String() }

// path returns the path of a resource in one namespace, or in all namespaces.
func (x *examination) path(r metav1.APIResource, namespace string) string {
	if namespace == "" {
		return x.root() + "/" + r.Name
	}
	return x.root() + "/namespaces/" + namespace + "/" + r.Name
}

// home returns the path of one object.
func (x *examination) home(r metav1.APIResource, o object) string {
	if !r.Namespaced {
		return x.path(r, "") + "/" + o.Metadata.Name
	}
	return x.path(r, o.Metadata.Namespace) + "/" + o.Metadata.Name
}

func can(r metav1.APIResource, verb string) bool { return slices.Contains(r.Verbs, verb) }

// object holds the fields that all objects have.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
}

func (o object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

type objectList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metav1.ListMeta `json:"metadata"`
	Items      []object        `json:"items"`
}

// keys returns the sorted keys of all objects.
func (l objectList) keys() []string {
	out := make([]string, len(l.Items))
	for i, o := range l.Items {
		out[i] = o.key()
	}
	slices.Sort(out)
	return out
}

// only returns a list of the objects for which wanted returns true.
func (l objectList) only(wanted func(object) bool) objectList {
	l.Items = slices.DeleteFunc(slices.Clone(l.Items), func(o object) bool { return !wanted(o) })
	return l
}

// list reads a list. pairs is its query.
func (x *examination) list(ctx context.Context, path string, pairs ...string) (l objectList, err error) {
	err = x.ask.get(ctx, path, pairs...).into(&l)
	return l, err
}

// each returns a check that runs f for every resource with a verb and returns the worst verdict.
func each(verb string, f func(context.Context, *examination, metav1.APIResource) verdict) func(context.Context, *examination) verdict {
	return func(ctx context.Context, x *examination) verdict {
		return x.worst(verb, func(r metav1.APIResource) verdict { return f(ctx, x, r) })
	}
}

func (x *examination) worst(verb string, f func(metav1.APIResource) verdict) verdict {
	out := verdict{outcome: NotApplicable}
	var details []string
	looked := 0
	for _, r := range x.resources {
		if !can(r, verb) {
			continue
		}
		if looked++; looked > maxResources {
			break
		}
		v := f(r)
		if v.outcome.rank() > out.outcome.rank() {
			out.outcome, details = v.outcome, nil
		}
		if v.outcome == out.outcome && v.detail != "" {
			details = append(details, r.Name+": "+v.detail)
		}
	}
	switch {
	case looked == 0 && len(x.resources) == 0:
		return notApplicable("no resources are known")
	case looked == 0:
		return notApplicable("no resource has the verb %s", verb)
	}
	out.detail = strings.Join(details, "; ")
	return out
}

// tries is the number of comparisons before lists count as different, because objects may change between two
// requests.
const tries = 3

// moving is like each, for checks that compare responses from different times.
func moving(verb string, f func(context.Context, *examination, metav1.APIResource) verdict) func(context.Context, *examination) verdict {
	return each(verb, func(ctx context.Context, x *examination, r metav1.APIResource) verdict {
		v := f(ctx, x, r)
		for i := 1; i < tries && v.outcome == Fail && ctx.Err() == nil; i++ {
			v = f(ctx, x, r)
		}
		return v
	})
}

// some passes a non-empty list to f.
func some(f func(context.Context, *examination, metav1.APIResource, objectList) verdict) func(context.Context, *examination, metav1.APIResource) verdict {
	return func(ctx context.Context, x *examination, r metav1.APIResource) verdict {
		l, err := x.list(ctx, x.path(r, ""))
		switch {
		case err != nil:
			return notApplicable("there is no list: %v", err)
		case len(l.Items) == 0:
			return notApplicable("there are no objects")
		}
		return f(ctx, x, r, l)
	}
}

// difference describes how got differs from want, or returns an empty string. Both must be sorted.
func difference(got, want []string) string {
	for _, name := range want {
		if !slices.Contains(got, name) {
			return fmt.Sprintf("%s is missing", name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			return fmt.Sprintf("%s is too much", name)
		}
	}
	if len(got) != len(want) {
		return "an object is there twice"
	}
	return ""
}

// denied reports whether the caller lacks the permission that a check requires.
func denied(a answer) bool { return a.is(http.StatusForbidden) || a.is(http.StatusUnauthorized) }
