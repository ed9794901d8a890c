package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const mediaAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func aggregatedChecks() []check {
	return []check{
		{id: "discovery/aggregated", expected: "/apis answers a client that asks for it with an APIGroupDiscoveryList of v2 that says so in its Content-Type",
			reason: "KEP-3352: one request instead of one for each group-version; front doors ask for it every minute", run: onAggregated(aggregatedForm)},
		{id: "discovery/agreement", expected: "both forms of discovery list the same",
			reason: "clients read one of them, by their age: kube-aggregator publishes a group-version that the new form lacks as empty", run: onAggregated(agreement)},
		{id: "discovery/etag", expected: "/apis has an ETag, and 304 is the answer to who has that",
			reason: "front doors and kubectl ask again and again for what seldom changes", run: onAggregated(discoveryTag)},
	}
}

func onAggregated(f func(context.Context, *examination, answer) verdict) func(context.Context, *examination) verdict {
	return func(ctx context.Context, x *examination) verdict {
		if !x.directly {
			return notApplicable(frontAnswers)
		}
		return f(ctx, x, x.ask.as(ctx, "/apis", mediaAggregated+","+"application/json"))
	}
}

func readAggregated(a answer) (list apidiscoveryv2.APIGroupDiscoveryList, err error) {
	if err := a.into(&list); err != nil {
		return list, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return list, fmt.Errorf("the kind is %q", list.Kind)
	}
	return list, nil
}

func aggregatedForm(_ context.Context, _ *examination, a answer) verdict {
	list, err := readAggregated(a)
	said := a.headers.Get("Content-Type")
	switch {
	case err != nil && strings.Contains(string(a.body[:min(len(a.body), 200)]), "APIGroupList"):
		return warned("the answer is an APIGroupList: clients ask for each group-version then")
	case err != nil:
		return failed("%v", err)
	case list.APIVersion != "apidiscovery.k8s.io/v2":
		return failed("the apiVersion is %q", list.APIVersion)
	case !strings.Contains(said, "g=apidiscovery.k8s.io") || !strings.Contains(said, "v=v2") || !strings.Contains(said, "as=APIGroupDiscoveryList"):
		return failed("the Content-Type is %q: clients read the answer as an APIGroupList then", said)
	}
	for _, group := range list.Items {
		for _, v := range group.Versions {
			for _, r := range v.Resources {
				if r.ResponseKind == nil {
					return failed("%s.%s has no responseKind, which client-go 0.26 falls over (kubernetes/kubernetes#118361)", r.Resource, group.Name)
				}
			}
		}
	}
	return ok
}

func agreement(_ context.Context, x *examination, a answer) verdict {
	list, err := readAggregated(a)
	if err != nil {
		return notApplicable("there is no aggregated discovery")
	}
	for _, group := range list.Items {
		for _, v := range group.Versions {
			if group.Name != x.gv.Group || v.Version != x.gv.Version {
				continue
			}
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				return failed("the server calls its own group-version stale")
			}
			if different := difference(flatten(v), x.flat()); different != "" {
				return failed("in the aggregated form %s", different)
			}
			return ok
		}
	}
	return failed("the aggregated form lacks %s", x.gv)
}

// flat returns a line for each resource in the legacy discovery document.
func (x *examination) flat() []string {
	var out []string
	for _, r := range x.all {
		out = append(out, line(r.Name, r.Kind, r.Namespaced, r.Verbs))
	}
	slices.Sort(out)
	return out
}

// flatten returns the same lines for the aggregated document. Parents without a kind exist only for their
// subresources.
func flatten(v apidiscoveryv2.APIVersionDiscovery) []string {
	var out []string
	for _, r := range v.Resources {
		namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
		if r.ResponseKind != nil && r.ResponseKind.Kind != "" {
			out = append(out, line(r.Resource, r.ResponseKind.Kind, namespaced, r.Verbs))
		}
		for _, sub := range r.Subresources {
			kind := ""
			if sub.ResponseKind != nil {
				kind = sub.ResponseKind.Kind
			}
			out = append(out, line(r.Resource+"/"+sub.Subresource, kind, namespaced, sub.Verbs))
		}
	}
	slices.Sort(out)
	return out
}

func line(name, kind string, namespaced bool, verbs metav1.Verbs) string {
	scope := "cluster-scoped"
	if namespaced {
		scope = "namespaced"
	}
	return fmt.Sprintf("%s (%s, %s, %s)", name, kind, scope, strings.Join(slices.Sorted(slices.Values(verbs)), " "))
}

func discoveryTag(ctx context.Context, x *examination, a answer) verdict {
	if _, err := readAggregated(a); err != nil {
		return notApplicable("there is no aggregated discovery")
	}
	return revalidation(ctx, x, a)
}

// revalidation repeats a request with the ETag of its response.
func revalidation(ctx context.Context, x *examination, a answer) verdict {
	tag := a.headers.Get("Etag")
	if tag == "" {
		return warned("there is no ETag: the document is sent whole each time")
	}
	again := a.question
	again.headers = http.Header{"If-None-Match": {tag}}
	second := x.ask.do(ctx, again)
	switch {
	case second.is(http.StatusNotModified) && len(second.body) == 0:
		return ok
	case second.is(http.StatusOK) && second.headers.Get("Etag") != tag:
		return warned("the document was another a moment later")
	}
	return failed("%s is answered %d to who has %s", a.where(), second.code, tag)
}
