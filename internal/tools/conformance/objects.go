package conformance

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func objectChecks() []check {
	return []check{
		{id: "objects/list", expected: "a list is of kind KINDList of the group-version, and its items are of KIND",
			reason: "clients decode by kind and apiVersion, and refuse what is of another", run: each("list", listKinds)},
		{id: "objects/names", expected: "objects have valid names, a namespace when the resource is namespaced, and no two have the same",
			reason: "clients keep objects by namespace and name, and ask for one by URL", run: each("list", some(objectNames))},
		{id: "objects/versions", expected: "where there is a watch, lists and objects have a resourceVersion",
			reason: "a client that has listed watches from there; without one informers go around in circles", run: each("watch", resourceVersions)},
		{id: "objects/get", expected: "an object of the list can be read by its name, and is the same",
			reason: "kubectl get NAME, and every controller that looks again before it acts", run: moving("list", some(getOne))},
	}
}

func listKinds(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	l, err := x.list(ctx, x.path(r, ""))
	switch {
	case err != nil:
		return failed("%v", err)
	case l.Kind != r.Kind+"List" || l.APIVersion != x.gv.String():
		return failed("the list is of %s %s", l.APIVersion, l.Kind)
	case l.Items == nil:
		return failed("items is missing or null, which clients in other languages fall over")
	}
	for _, o := range l.Items {
		// Servers may omit both in items, because the list has them.
		if o.Kind != "" && o.Kind != r.Kind || o.APIVersion != "" && o.APIVersion != x.gv.String() {
			return failed("%s is of %s %s", o.key(), o.APIVersion, o.Kind)
		}
	}
	return ok
}

func objectNames(_ context.Context, _ *examination, r metav1.APIResource, l objectList) verdict {
	keys := l.keys()
	if len(slices.Compact(slices.Clone(keys))) != len(keys) {
		return failed("an object is there twice")
	}
	for _, o := range l.Items {
		switch {
		// A name becomes a path segment. No other rules apply: names in RBAC contain colons.
		case o.Metadata.Name == "" || o.Metadata.Name == "." || o.Metadata.Name == ".." || slices.ContainsFunc([]rune(o.Metadata.Name), func(c rune) bool { return c == '/' || c == '%' }):
			return failed("an object is called %q", o.Metadata.Name)
		case r.Namespaced && len(validation.IsDNS1123Label(o.Metadata.Namespace)) > 0:
			return failed("%s is in namespace %q", o.Metadata.Name, o.Metadata.Namespace)
		case !r.Namespaced && o.Metadata.Namespace != "":
			return failed("%s is in namespace %q, and the resource has none", o.Metadata.Name, o.Metadata.Namespace)
		}
	}
	return ok
}

func resourceVersions(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	l, err := x.list(ctx, x.path(r, ""))
	switch {
	case err != nil:
		return notApplicable("there is no list: %v", err)
	case l.Metadata.ResourceVersion == "" || l.Metadata.ResourceVersion == "0":
		return failed("the list has the resourceVersion %q", l.Metadata.ResourceVersion)
	}
	for _, o := range l.Items {
		if o.Metadata.ResourceVersion == "" {
			return failed("%s has no resourceVersion", o.key())
		}
	}
	return ok
}

func getOne(ctx context.Context, x *examination, r metav1.APIResource, l objectList) verdict {
	if !can(r, "get") {
		return notApplicable("there is no verb get")
	}
	want := l.Items[0]
	a := x.ask.get(ctx, x.home(r, want))
	if a.is(http.StatusForbidden) {
		return notApplicable("the caller may not: %s", a)
	}
	var got object
	if err := a.into(&got); err != nil {
		return failed("%v", err)
	}
	if got.key() != want.key() || got.Kind != r.Kind || got.APIVersion != x.gv.String() {
		return failed("%s is answered with %s %s %s", a.where(), got.APIVersion, got.Kind, got.key())
	}
	return ok
}
