package conformance

import (
	"context"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const frontAnswers = "the API server answers this itself; `conformance url` asks the extension server"

func discoveryChecks() []check {
	return []check{
		{id: "discovery/resources", expected: "/apis/GROUP/VERSION is an APIResourceList of that group-version",
			reason: "front doors take the server for down without it, and clients find nothing", run: resourceList},
		{id: "discovery/groups", expected: "/apis is an APIGroupList that has the group with this version",
			reason: "clients that ask the server itself start here", run: groupList},
		{id: "discovery/names", expected: "names are lower-case, kinds CamelCase, and no name is used twice",
			reason: "clients build URLs from names and look kinds up by them", run: withResources(resourceNames)},
		{id: "discovery/singular", expected: "a singular name is lower-case and nobody else's name",
			reason: "kubectl takes the singular for the resource; empty means that it is guessed from the kind", run: withResources(singularNames)},
		{id: "discovery/verbs", expected: "verbs are those that Kubernetes has, at least one each",
			reason: "clients ask only what the verbs allow: garbage collection and namespace deletion go by them", run: withResources(knownVerbs)},
		{id: "discovery/subresources", expected: "a subresource has a parent of the same scope",
			reason: "aggregated discovery nests subresources; kube-aggregator makes up a parent for an orphan, and fails on a mismatch of scope", run: withResources(parents)},
	}
}

func resourceList(_ context.Context, x *examination) verdict {
	var list metav1.APIResourceList
	if err := x.legacy.into(&list); err != nil {
		return failed("%v", err)
	}
	switch {
	case list.Kind != "APIResourceList":
		return failed("the kind is %q", list.Kind)
	case list.GroupVersion != x.gv.String():
		return failed("the groupVersion is %q", list.GroupVersion)
	case list.APIResources == nil:
		return failed("resources is missing; an empty list says that there are none")
	case len(list.APIResources) == 0:
		return noted("there are no resources")
	}
	return ok
}

func groupList(ctx context.Context, x *examination) verdict {
	if !x.directly {
		return notApplicable(frontAnswers)
	}
	var list metav1.APIGroupList
	if err := x.ask.get(ctx, "/apis").into(&list); err != nil {
		return failed("%v", err)
	}
	if list.Kind != "APIGroupList" {
		return failed("the kind is %q", list.Kind)
	}
	for _, g := range list.Groups {
		if g.Name != x.gv.Group {
			continue
		}
		for _, v := range g.Versions {
			if v.GroupVersion == x.gv.String() && v.Version == x.gv.Version {
				return ok
			}
		}
	}
	return failed("%s is not listed", x.gv)
}

// withResources returns a check that applies only if discovery lists resources.
func withResources(f func(*examination) verdict) func(context.Context, *examination) verdict {
	return func(_ context.Context, x *examination) verdict {
		if len(x.all) == 0 {
			return notApplicable("no resources are known")
		}
		return f(x)
	}
}

var (
	// resourceName permits dots and any name after them, because metrics are resources too
	// (pods/http_requests_total).
	resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	kindName     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

func resourceNames(x *examination) verdict {
	seen := map[string]bool{}
	for _, r := range x.all {
		parent, _, nested := strings.Cut(r.Name, "/")
		switch {
		case seen[r.Name]:
			return failed("%s is there twice", r.Name)
		case !resourceName.MatchString(parent) && (nested || x.gv.Group != "external.metrics.k8s.io"):
			return failed("the name %q", r.Name)
		case !kindName.MatchString(r.Kind):
			return failed("%s has the kind %q", r.Name, r.Kind)
		}
		seen[r.Name] = true
	}
	return ok
}

func singularNames(x *examination) verdict {
	taken := map[string]string{}
	for _, r := range x.resources {
		taken[r.Name] = r.Name
	}
	for _, r := range x.resources {
		owner, used := taken[r.SingularName]
		switch {
		case r.SingularName == "":
			continue
		case !resourceName.MatchString(r.SingularName):
			return failed("%s has the singular %q", r.Name, r.SingularName)
		case used && owner != r.Name:
			return failed("%s has the singular %q, which is also of %s", r.Name, r.SingularName, owner)
		}
		taken[r.SingularName] = r.Name
	}
	return ok
}

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch", "proxy", "use", "bind", "escalate", "impersonate"}

func knownVerbs(x *examination) verdict {
	for _, r := range x.all {
		if len(r.Verbs) == 0 {
			return failed("%s has no verbs", r.Name)
		}
		for _, verb := range r.Verbs {
			if !slices.Contains(verbs, verb) {
				return failed("%s has the verb %q", r.Name, verb)
			}
		}
	}
	return ok
}

func parents(x *examination) verdict {
	scopes := map[string]bool{}
	for _, r := range x.resources {
		scopes[r.Name] = r.Namespaced
	}
	found := notApplicable("there are no subresources")
	for _, r := range x.all {
		parent, _, nested := strings.Cut(r.Name, "/")
		if !nested {
			continue
		}
		if found.outcome == NotApplicable {
			found = ok
		}
		namespaced, known := scopes[parent]
		switch {
		case known && namespaced != r.Namespaced:
			return failed("%s and %s differ in scope", r.Name, parent)
		case !known && x.gv.Group == "custom.metrics.k8s.io":
			found = noted("parents are in other groups, as in all of %s", x.gv.Group)
		case !known:
			found = warned("%s has no parent", r.Name)
		}
	}
	return found
}
