package conformance

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func scopeChecks() []check {
	return []check{
		{id: "scope/namespace", expected: "a list in a namespace has what the list of all namespaces has of that namespace",
			why: "rights are given by namespace: who may list in one must not see another", run: moving("list", some(inNamespace))},
		{id: "scope/empty", expected: "a list in a namespace that has nothing is empty",
			why: "clients take an error for a reason to stop", run: each("list", inNobodys)},
		{id: "scope/cluster", expected: "a resource without namespaces is not found in one",
			why: "who may do something in a namespace would be asked about the wrong thing", run: each("list", notInNamespace)},
	}
}

func inNamespace(ctx context.Context, x *examination, r metav1.APIResource, all objectList) verdict {
	if !r.Namespaced {
		return without("cluster-scoped")
	}
	namespace := all.Items[0].Metadata.Namespace
	got, err := x.list(ctx, x.path(r, namespace))
	if err != nil {
		return failed("%v", err)
	}
	want := all.only(func(o object) bool { return o.Metadata.Namespace == namespace })
	if different := difference(got.keys(), want.keys()); different != "" {
		return failed("in namespace %s, %s", namespace, different)
	}
	return ok
}

func inNobodys(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	if !r.Namespaced {
		return without("cluster-scoped")
	}
	l, err := x.list(ctx, x.path(r, nothing))
	switch {
	case err != nil:
		return failed("%v", err)
	case len(l.Items) > 0:
		return failed("namespace %s has %s", nothing, l.keys()[0])
	}
	return ok
}

func notInNamespace(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	if r.Namespaced {
		return without("namespaced")
	}
	a := x.ask.get(ctx, x.path(r, nothing))
	if denied(a) {
		return ok
	}
	if !a.is(http.StatusNotFound) {
		return failed("%s", a)
	}
	return ok
}
