package routing

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/request"
	"portico.dev/internal/routes/v1alpha1"
)

func decode(t testing.TB, text string) *v1alpha1.APIRoute {
	t.Helper()
	o := &v1alpha1.APIRoute{}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func compile(t testing.TB, text string) *Route {
	t.Helper()
	r, err := Compile(decode(t, text), func(name string) (labels.Set, bool) {
		if name == "missing" {
			return nil, false
		}
		return labels.Set{"team": strings.TrimPrefix(name, "team-")}, true
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask returns the request "VERB PATH" as rules see it after the handler chain.
func ask(t testing.TB, method, target, user string, header http.Header) *Request {
	t.Helper()
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := request.NewResolver().Info(r)
	if err != nil {
		t.Fatal(err)
	}
	q := NewRequest(info, user, header)
	return &q
}

// chosen returns the backends and the rules of a request in the form "backend(rule)".
func chosen(r *Route, q *Request) string {
	var names []string
	for _, c := range r.Choose(q, nil) {
		name := r.Backends[c.Backend].Name + "(" + c.Rule + ")"
		if c.Fallback >= 0 {
			name += "|" + r.Backends[c.Fallback].Name
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

const metricsRoute = `
metadata: {name: v1beta1.custom.metrics.k8s.io}
spec:
  backends:
  - name: adapter
  - {name: queues, service: {namespace: q, name: q}}
  - {name: night, service: {namespace: n, name: n}}
  rules:
  - {name: queues, matches: [{metrics: ["queue_*"]}], backendRefs: [{name: queues}], fallback: adapter}
  - {name: night, matches: [{namespaces: ["night-*"], resources: [pods]}, {metrics: [owls], names: ["owl-?"]}], backendRefs: [{name: night}]}
`

func TestMetricsAreRoutedByName(t *testing.T) {
	r := compile(t, metricsRoute)
	const root = "/apis/custom.metrics.k8s.io/v1beta1"
	for target, want := range map[string]string{
		root + "/namespaces/a/pods/web/requests":       "adapter()",
		root + "/namespaces/a/pods/*/requests":         "adapter()",
		root + "/namespaces/a/pods/*/queue_length":     "queues(queues)|adapter",
		root + "/namespaces/a/metrics/queue_length":    "queues(queues)|adapter",
		root + "/namespaces/a/metrics/other":           "adapter()",
		root + "/nodes/n1/queue_length":                "queues(queues)|adapter",
		root + "/namespaces/night-1/pods/*/requests":   "night(night)",
		root + "/namespaces/night-1/metrics/requests":  "adapter()", // of the namespace, not of pods
		root + "/namespaces/a/pods/owl-1/owls":         "night(night)",
		root + "/namespaces/a/pods/owl-12/owls":        "adapter()",
		root + "/namespaces/a/pods/*/owls":             "night(night) adapter()",
		root + "/nodes/*/owls":                         "night(night) adapter()",
		root + "/namespaces/night-1/pods/*/owls":       "night(night)",
		root + "/namespaces/a/deployments.apps/x/owls": "adapter()",
	} {
		if got := chosen(r, ask(t, "GET", target, "u", nil)); got != want {
			t.Errorf("backends of GET %s = %s, want %s", target, got, want)
		}
	}
}

func TestExternalMetricsAreRoutedByName(t *testing.T) {
	r := compile(t, `
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  backends: [{name: keda}, {name: own, service: {namespace: o, name: o}}]
  rules:
  - {name: own, matches: [{metrics: ["own_*"], namespaceSelector: {matchLabels: {team: a}}}], backendRefs: [{name: own}]}
`)
	for target, want := range map[string]string{
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/team-a/own_queue":  "own(own)",
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/team-b/own_queue":  "keda()",
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/missing/own_queue": "keda()",
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/team-a/other":      "keda()",
	} {
		if got := chosen(r, ask(t, "GET", target, "u", nil)); got != want {
			t.Errorf("backends of GET %s = %s, want %s", target, got, want)
		}
	}
}

func TestRequestsAreRoutedByAttributesAndHeader(t *testing.T) {
	r := compile(t, `
metadata: {name: v1.example.com}
spec:
  backends: [{name: old}, {name: new, service: {namespace: n, name: n}}, {name: logs, service: {namespace: l, name: l}}]
  rules:
  - {name: testers, matches: [{headers: [{name: x-canary, value: always}]}], backendRefs: [{name: new}]}
  - {name: logs, matches: [{resources: [widgets/log]}], backendRefs: [{name: logs}]}
  - {name: gadgets, matches: [{resources: [gadgets], access: Read}], backendRefs: [{name: new}], fallback: old}
  - {name: moved, matches: [{resources: [widgets], namespaceSelector: {matchLabels: {team: a}}}], backendRefs: [{name: new}]}
  - {name: named, matches: [{resources: [things], names: ["new-*"]}], backendRefs: [{name: new}]}
`)
	canary := http.Header{"X-Canary": {"always"}}
	for _, c := range []struct {
		method, target string
		header         http.Header
		want           string
	}{
		{"GET", "/apis/example.com/v1/namespaces/x/widgets/a", nil, "old()"},
		{"GET", "/apis/example.com/v1/namespaces/x/widgets/a", canary, "new(testers)"},
		{"GET", "/apis/example.com/v1/namespaces/x/widgets/a", http.Header{"X-Canary": {"never"}}, "old()"},
		{"GET", "/apis/example.com/v1/namespaces/x/widgets/a/log", nil, "logs(logs)"},
		{"GET", "/apis/example.com/v1/namespaces/x/gadgets", nil, "new(gadgets)|old"},
		{"GET", "/apis/example.com/v1/namespaces/x/gadgets/a/status", nil, "new(gadgets)|old"},
		{"POST", "/apis/example.com/v1/namespaces/x/gadgets", nil, "old()"},
		{"DELETE", "/apis/example.com/v1/namespaces/x/gadgets", nil, "old()"},
		{"PUT", "/apis/example.com/v1/namespaces/team-a/widgets/a", nil, "new(moved)"},
		{"POST", "/apis/example.com/v1/namespaces/team-a/widgets", nil, "new(moved)"},
		{"GET", "/apis/example.com/v1/namespaces/team-b/widgets", nil, "old()"},
		{"GET", "/apis/example.com/v1/widgets", nil, "new(moved) old()"},
		{"GET", "/apis/example.com/v1/widgets?watch=1", nil, "new(moved) old()"},
		{"GET", "/apis/example.com/v1/namespaces/x/things", nil, "new(named) old()"},
		{"GET", "/apis/example.com/v1/namespaces/x/things?fieldSelector=metadata.name%3Dnew-1", nil, "new(named)"},
		{"GET", "/apis/example.com/v1/namespaces/x/things?fieldSelector=metadata.name%3Dold-1", nil, "old()"},
		{"POST", "/apis/example.com/v1/namespaces/x/things", nil, "new(named) old()"},
		{"PATCH", "/apis/example.com/v1/namespaces/x/things/new-1", nil, "new(named)"},
	} {
		if got := chosen(r, ask(t, c.method, c.target, "u", c.header)); got != c.want {
			t.Errorf("backends of %s %s with the headers %v = %s, want %s", c.method, c.target, c.header, got, c.want)
		}
	}
}

func TestWeightsApplyPerUserForReadsPerObjectForWrites(t *testing.T) {
	r := compile(t, `
metadata: {name: v1.example.com}
spec:
  backends: [{name: stable}, {name: canary, service: {namespace: n, name: n}}, {name: off, service: {namespace: n, name: off}}]
  rules:
  - {name: canary, backendRefs: [{name: stable, weight: 80}, {name: canary, weight: 20}, {name: off, weight: 0}]}
`)
	count := map[string]int{}
	const users = 5000
	for i := range users {
		user := fmt.Sprintf("system:serviceaccount:ns:user-%d", i)
		first := chosen(r, ask(t, "GET", "/apis/example.com/v1/namespaces/x/widgets/a", user, nil))
		count[first]++
		if again := chosen(r, ask(t, "GET", "/apis/example.com/v1/namespaces/y/others?watch=1", user, nil)); again != first {
			t.Fatalf("backends of two reads by %s = %s and %s, want the same", user, first, again)
		}
	}
	if share := float64(count["canary(canary)"]) / users; share < 0.17 || share > 0.23 || len(count) != 2 {
		t.Errorf("backends of %d users = %v, want a fifth at canary", users, count)
	}
	count = map[string]int{}
	for i := range users {
		target := fmt.Sprintf("/apis/example.com/v1/namespaces/x/widgets/w-%d", i)
		first := chosen(r, ask(t, "PUT", target, "alice", nil))
		count[first]++
		if again := chosen(r, ask(t, "DELETE", target, "bob", nil)); again != first {
			t.Fatalf("backends of two writes of %s = %s and %s, want the same", target, first, again)
		}
	}
	if share := float64(count["canary(canary)"]) / users; share < 0.17 || share > 0.23 || len(count) != 2 {
		t.Errorf("backends of %d objects = %v, want a fifth at canary", users, count)
	}
}

func TestListedObjectHasOneBackend(t *testing.T) {
	r := compile(t, metricsRoute)
	q := ask(t, "GET", "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/*/owls", "u", nil)
	for name, want := range map[string]string{"owl-1": "night(night)", "owl-12": "adapter()", "web": "adapter()"} {
		of := q.ForObject("a", name)
		if got := chosen(r, &of); got != want {
			t.Errorf("backends of the object %s = %s, want %s", name, got, want)
		}
	}
}

func TestBackendsInUse(t *testing.T) {
	for text, want := range map[string][]bool{
		"[]": {true, false},
		"[{name: all, backendRefs: [{name: b}]}]":                                                                   {false, true},
		"[{name: all, backendRefs: [{name: b}], fallback: a}]":                                                      {true, true},
		"[{name: some, matches: [{resources: [x]}], backendRefs: [{name: b}]}]":                                     {true, true},
		"[{name: all, backendRefs: [{name: a}]}, {name: late, backendRefs: [{name: b}]}]":                           {true, false},
		"[{name: all, backendRefs: [{name: a}, {name: b, weight: 0}]}]":                                             {true, false},
		"[{name: r, matches: [{resources: [x]}], backendRefs: [{name: a}]}, {name: all, backendRefs: [{name: a}]}]": {true, false},
	} {
		r := compile(t, "metadata: {name: v1.example.com}\nspec: {backends: [{name: a}, {name: b, service: {namespace: n, name: n}}], rules: "+text+"}")
		if got := r.InUse(); !slices.Equal(got, want) {
			t.Errorf("InUse() with the rules %s = %v, want %v", text, got, want)
		}
	}
}

func TestPatternsMatchWildcards(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"a*b*c", "aXXbYYc", true}, {"a*b*c", "aXXcYYb", false}, {"", "", true}, {"", "a", false}, {"a**", "a", true},
		{strings.Repeat("*a", 100) + "b", strings.Repeat("a", 200), false},
	} {
		if got := matchPattern(c.pattern, c.name); got != c.want {
			t.Errorf("matchPattern(%q, %q) = %t, want %t", c.pattern, c.name, got, c.want)
		}
	}
}

// A pattern matches every name that a covered pattern matches.
func FuzzCoversPattern(f *testing.F) {
	for _, s := range [][3]string{{"a*", "ab*", "abc"}, {"a?", "a*", "a"}, {"*", "?", "x"}, {"*b", "a*b", "ab"}, {"??", "*?", "a"}} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, wide, narrow, name string) {
		if coversPattern(wide, narrow) && matchPattern(narrow, name) && !matchPattern(wide, name) {
			t.Errorf("coversPattern(%q, %q) = true, but only the second matches %q, want both to match", wide, narrow, name)
		}
	})
}

// No request selects a rule that is reported as unreachable.
func TestRulesThatNeverMatchAreNeverChosen(t *testing.T) {
	lists := [][]string{nil, {"*"}, {"a*"}, {"ab"}, {"a?", "b*"}}
	values := []string{"", "a", "ab", "abc", "b"}
	header := []http.Header{nil, {"X-Canary": {"yes"}}}
	var matches []v1alpha1.APIRouteMatch
	for _, access := range []v1alpha1.Access{"", v1alpha1.AccessRead} {
		for _, resources := range lists {
			for _, namespaces := range lists {
				for _, names := range lists {
					for _, h := range [][]v1alpha1.HeaderMatch{nil, {{Name: "x-canary", Value: "yes"}}} {
						matches = append(matches, v1alpha1.APIRouteMatch{Access: access, Resources: resources, Namespaces: namespaces, Names: names, Headers: h})
					}
				}
			}
		}
	}
	var requests []Request
	for _, verb := range []string{"get", "list", "create", "delete"} {
		for _, resource := range values[1:] {
			for _, namespace := range values {
				for _, name := range values {
					for _, h := range header {
						requests = append(requests, Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name, Header: h,
							AnyName: name == "", AnyNamespace: name == "" && namespace == "" && verb != "create"})
					}
				}
			}
		}
	}
	covered := 0
	for i := 0; i < len(matches); i += 3 {
		for j := 0; j < len(matches); j += 7 {
			wide, narrow := matches[i], matches[j]
			if !covers(&wide, &narrow) {
				continue
			}
			covered++
			r := &Route{}
			for k := range requests {
				q := &requests[k]
				w, n := r.holds(&condition{APIRouteMatch: wide}, q), r.holds(&condition{APIRouteMatch: narrow}, q)
				if n > w {
					t.Fatalf("%+v covers %+v, but only the second matches %+v, want both to match", wide, narrow, q)
				}
			}
		}
	}
	if covered < 100 {
		t.Errorf("%d pairs were covered, want at least 100", covered)
	}
}

func TestValidation(t *testing.T) {
	const head = "metadata: {name: v1.example.com}\nspec:\n  backends: [{name: a}, {name: b, service: {namespace: n, name: n}}]\n"
	for text, want := range map[string]string{
		"metadata: {name: v1.example.com}\nspec: {backends: []}":                                                                                                      "spec.backends: Required value: at least one backend",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a}, {name: a}]}":                                                                                  `spec.backends[1].name: Duplicate value: "a"`,
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: A}]}":                                                                                             "spec.backends[0].name: Invalid value",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, caBundle: YQ==}]}":                                                                             "spec.backends[0].caBundle: Forbidden",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, version: v1}]}":                                                                                "spec.backends[0].version: Invalid value: \"v1\": is the version of the APIRoute",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, version: ../x}]}":                                                                              "spec.backends[0].version: Invalid value",
		"metadata: {name: v1beta2.custom.metrics.k8s.io}\nspec: {backends: [{name: a, version: v1beta1}]}":                                                            "spec.backends[0].version: Forbidden",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, service: {namespace: n}}]}":                                                                    "spec.backends[0].service.name: Required value",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, service: {namespace: n, name: n, port: 0}}]}":                                                  "spec.backends[0].service.port: Invalid value: 0",
		head + "  rules: [{name: r, backendRefs: []}]":                                                                                                                "spec.rules[0].backendRefs: Required value",
		head + "  rules: [{name: r, backendRefs: [{name: c}]}]":                                                                                                       `spec.rules[0].backendRefs[0].name: Not found: "c"`,
		head + "  rules: [{name: r, backendRefs: [{name: a, weight: 0}]}]":                                                                                            "at least one backend must have a weight above 0",
		head + "  rules: [{name: r, backendRefs: [{name: a, weight: -1}]}]":                                                                                           "spec.rules[0].backendRefs[0].weight: Invalid value: -1",
		head + "  rules: [{name: r, backendRefs: [{name: a}], fallback: a}]":                                                                                          "spec.rules[0].fallback: Invalid value",
		head + "  rules: [{name: r, backendRefs: [{name: a}], fallback: c}]":                                                                                          `spec.rules[0].fallback: Not found: "c"`,
		head + "  rules: [{name: r, matches: [{}], backendRefs: [{name: a}]}]":                                                                                        "spec.rules[0].matches[0]: Required value",
		head + "  rules: [{name: r, matches: [{access: Any}], backendRefs: [{name: a}]}]":                                                                             `supported values: "Read", "Write"`,
		head + "  rules: [{name: r, matches: [{metrics: [x]}], backendRefs: [{name: a}]}]":                                                                            "spec.rules[0].matches[0].metrics: Forbidden",
		head + "  rules: [{name: r, matches: [{namespaces: [a/b]}], backendRefs: [{name: a}]}]":                                                                       "must not contain '/'",
		head + "  rules: [{name: r, matches: [{names: ['a,b']}], backendRefs: [{name: a}]}]":                                                                          "must be a name",
		head + "  rules: [{name: r, matches: [{namespaceSelector: {}}], backendRefs: [{name: a}]}]":                                                                   "selects every namespace",
		head + "  rules: [{name: r, matches: [{headers: [{name: Authorization, value: x}]}], backendRefs: [{name: a}]}]":                                              "spec.rules[0].matches[0].headers[0].name: Forbidden",
		head + "  rules: [{name: r, matches: [{headers: [{name: x-remote-user, value: x}]}], backendRefs: [{name: a}]}]":                                              "spec.rules[0].matches[0].headers[0].name: Forbidden",
		head + "  rules: [{name: r, backendRefs: [{name: a}]}, {name: r, backendRefs: [{name: a}]}]":                                                                  `spec.rules[1].name: Duplicate value: "r"`,
		head + "  rules: [{name: r, backendRefs: [{name: a}], sharedReads: {maxAge: 6m}}]":                                                                            "spec.rules[0].sharedReads.maxAge: Invalid value: \"6m0s\": must be from 0s to 5m0s",
		head + "  rules: [{name: r, backendRefs: [{name: a}], sharedReads: {maxAge: -1s}}]":                                                                           "spec.rules[0].sharedReads.maxAge: Invalid value",
		head + "  rules: [{name: r, backendRefs: [{name: a}], sharedReads: {maxAge: 1s, staleIfError: 25h}}]":                                                         "spec.rules[0].sharedReads.staleIfError: Invalid value",
		head + "  rules: [{name: r, backendRefs: [{name: a}], sharedReads: {maxAge: 1s, callers: Some}}]":                                                             `spec.rules[0].sharedReads.callers: Unsupported value: "Some": supported values: "Same", "All"`,
		"metadata: {name: v1beta1.external.metrics.k8s.io}\nspec: {backends: [{name: a}], rules: [{name: r, matches: [{resources: [x]}], backendRefs: [{name: a}]}]}": "resources: Forbidden",
	} {
		errs := Validate(decode(t, text)).ToAggregate()
		if errs == nil || !strings.Contains(errs.Error(), want) {
			t.Errorf("Validate of\n%s\n= %v, want an error that contains %q", text, errs, want)
		}
	}
	for name, valid := range map[string]bool{"v1.example.com": true, "v1beta1.custom.metrics.k8s.io": true, "v1.": false, "v1": false, "v1.a_b": false, "V1.example.com": false, "..": false} {
		if got := len(CheckName(name, false)) == 0; got != valid {
			t.Errorf("CheckName(%q) accepts the name = %t, want %t", name, got, valid)
		}
	}
}

func TestA43IdentityHeaderMatchIsRejected(t *testing.T) {
	for _, name := range []string{"Authorization", "authorization", "Cookie", "X-Remote-User", "x-remote-extra-a", "Impersonate-User", "X-Forwarded-For", "Proxy-Authorization", "a b", "a:b"} {
		o := decode(t, "metadata: {name: v1.example.com}\nspec: {backends: [{name: a}], rules: [{name: r, backendRefs: [{name: a}]}]}")
		o.Spec.Rules[0].Matches = []v1alpha1.APIRouteMatch{{Headers: []v1alpha1.HeaderMatch{{Name: name, Value: "x"}}}}
		if Validate(o) == nil {
			t.Errorf("Validate of a match on the header %q returned no error, want an error", name)
		}
	}
	if o := decode(t, "metadata: {name: v1.example.com}\nspec: {backends: [{name: a, version: v1/../v2}]}"); Validate(o) == nil {
		t.Error("Validate of the version v1/../v2 returned no error, want an error")
	}
}

func TestWarningsNameIneffectiveRules(t *testing.T) {
	const head = "metadata: {name: v1.example.com}\nspec:\n  backends: [{name: a}, {name: b, service: {namespace: n, name: n}}]\n"
	for text, want := range map[string][]string{
		head + "  rules: [{name: all, backendRefs: [{name: a}]}, {name: late, matches: [{resources: [x]}], backendRefs: [{name: b}]}]":                                {"rule late never matches: rule all before it", "backend b gets no requests"},
		head + "  rules: [{name: r1, matches: [{names: ['a*']}], backendRefs: [{name: b}]}, {name: r2, matches: [{names: ['ab?']}], backendRefs: [{name: b}]}]":       {"rule r2 never matches: rule r1"},
		head + "  rules: [{name: r1, matches: [{names: ['a?']}], backendRefs: [{name: b}]}, {name: r2, matches: [{names: ['a*']}], backendRefs: [{name: b}]}]":        nil,
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, version: v1beta1}], rules: [{name: w, matches: [{access: Write}], backendRefs: [{name: a}]}]}": {"rule w sends writes"},
		head + "  rules: [{name: w, matches: [{access: Write}], backendRefs: [{name: a}, {name: b}], sharedReads: {maxAge: 1s}}]":                                     {"rule w: sharedReads has no effect"},
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, service: {namespace: n, name: n}, insecureSkipTLSVerify: true}]}":                              {"backend a: insecureSkipTLSVerify"},
		"metadata: {name: v1beta1.external.metrics.k8s.io}\nspec: {backends: [{name: a}], rules: [{name: w, matches: [{access: Write}], backendRefs: [{name: a}]}]}":  {"rule w never matches: external.metrics.k8s.io has no writes"},
	} {
		got := Warnings(decode(t, text))
		if len(got) != len(want) {
			t.Errorf("Warnings of\n%s\n= %q, want %q", text, got, want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("warning of\n%s\n= %q, want the prefix %q", text, got[i], want[i])
			}
		}
	}
}

// A choice for a plain request must not allocate.
func TestChooseDoesNotAllocate(t *testing.T) {
	r := compile(t, metricsRoute)
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: customMetrics, APIVersion: "v1beta1", Namespace: "a", Resource: "pods", Name: "web", Subresource: "requests"}
	header := http.Header{}
	places := sets.New[int]()
	if n := testing.AllocsPerRun(100, func() {
		var room [4]*Choice
		q := NewRequest(info, "alice", header)
		for _, c := range r.Choose(&q, room[:0]) {
			places.Insert(c.Backend)
		}
	}); n > 0 {
		t.Errorf("a choice allocates %v times, want 0", n)
	}
}
