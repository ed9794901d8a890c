package conformance

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func errorChecks() []check {
	return []check{
		{id: "errors/object", expected: "an object that is not there is a 404 Status of reason NotFound that names it",
			reason: "clients tell a missing object from a missing server by that", run: each("get", missingObject)},
		{id: "errors/resource", expected: "a resource that is not there is a 404 Status",
			reason: "clients parse Status; plain text shows as \"the server could not find the requested resource\"", run: missingResource},
		{id: "errors/path", expected: "a path that is not there is a 404 Status",
			reason: "as above", run: missingPath},
		{id: "errors/verb", expected: "a verb that a resource lacks is a 405 Status",
			reason: "a 404 would say that the object is not there, and a 500 that trying again helps", run: missingVerb},
	}
}

// nowhere returns the path of an object that does not exist.
func (x *examination) nowhere(r metav1.APIResource) string {
	return x.home(r, object{Metadata: metav1.ObjectMeta{Namespace: "default", Name: nothing}})
}

func missingObject(ctx context.Context, x *examination, r metav1.APIResource) verdict {
	a := x.ask.get(ctx, x.nowhere(r))
	if a.is(http.StatusForbidden) {
		return notApplicable("the caller may not: %s", a)
	}
	if v := a.refusal(http.StatusNotFound); v.outcome != Pass {
		return v
	}
	s := a.status()
	switch {
	case s.Reason != metav1.StatusReasonNotFound:
		return failed("the reason is %q", s.Reason)
	case s.Details == nil || s.Details.Name != nothing:
		return warned("the details of the Status do not name the object")
	}
	return ok
}

func missingResource(ctx context.Context, x *examination) verdict {
	return absent(x.ask.get(ctx, x.root()+"/"+strings.ReplaceAll(nothing, "-", "")))
}

func missingPath(ctx context.Context, x *examination) verdict {
	if !x.directly {
		return notApplicable(frontAnswers)
	}
	return absent(x.ask.get(ctx, "/apis/"+x.gv.Group+"/v0"+nothing[:7]))
}

// absent requires a 404. A 404 without a Status, as k8s.io/apiserver sends in some cases, is only a warning.
func absent(a answer) verdict {
	if a.is(http.StatusForbidden) {
		return notApplicable("the caller may not: %s", a)
	}
	if v := a.refusal(http.StatusNotFound); v.outcome == Pass || !a.is(http.StatusNotFound) {
		return v
	}
	return warned("%s is answered 404, %v", a.where(), a.statusShape())
}

// missingVerb sends a request that is harmless if it succeeds: it deletes or patches an object that does not exist.
func missingVerb(ctx context.Context, x *examination) verdict {
	v := x.worst("get", func(r metav1.APIResource) verdict {
		method, body := http.MethodDelete, []byte(nil)
		switch {
		case !can(r, "delete"):
		case !can(r, "patch"):
			method, body = http.MethodPatch, []byte("{}")
		default:
			return notApplicable("it can be deleted and patched")
		}
		a := x.ask.do(ctx, question{method: method, path: x.nowhere(r), body: body, query: query("dryRun", "All")})
		if denied(a) {
			return notApplicable("the caller may not: %s", a)
		}
		return a.refusal(http.StatusMethodNotAllowed)
	})
	if v.outcome == NotApplicable && v.detail == "" {
		v.detail = "there is no such resource"
	}
	return v
}

func scopeChecks() []check {
	return []check{
		{id: "scope/namespace", expected: "a list in a namespace has what the list of all namespaces has of that namespace",
			reason: "rights are given by namespace: who may list in one must not see another", run: moving("list", some(inNamespace))},
		{id: "scope/empty", expected: "a list in a namespace that has nothing is empty",
			reason: "clients take an error for a reason to stop", run: each("list", inNobodys)},
		{id: "scope/cluster", expected: "a resource without namespaces is not found in one",
			reason: "who may do something in a namespace would be asked about the wrong thing", run: each("list", notInNamespace)},
	}
}

func inNamespace(ctx context.Context, x *examination, r metav1.APIResource, all objectList) verdict {
	if !r.Namespaced {
		return notApplicable("cluster-scoped")
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
		return notApplicable("cluster-scoped")
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
		return notApplicable("namespaced")
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
