package routing

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

const mirrored = `
metadata: {name: v1.example.com}
spec:
  backends: [{name: old}, {name: new, service: {namespace: n, name: n}}]
  rules:
  - {name: some, matches: [{resources: [widgets]}], backendRefs: [{name: old}], mirror: {backend: new, percent: 5, ignore: [spec.a]}}
  - {name: half, matches: [{resources: [others]}], backendRefs: [{name: old}, {name: new}], mirror: {backend: new}}
`

func TestMirrorBackendFollowsRuleAndPercentage(t *testing.T) {
	r := compile(t, mirrored)
	choose := func(resource, user string) *Choice {
		return r.Choose(ask(t, http.MethodGet, "/apis/example.com/v1/"+resource, user, nil), nil)[0]
	}
	if m := choose("widgets", "u").Mirror; m == nil || m.Backend != 1 || m.Percent != 5 || len(m.Ignore) != 1 {
		t.Errorf("mirror of widgets = %+v, want the backend 1, 5 percent and one ignored field", m)
	}
	if m := choose("gadgets", "u").Mirror; m != nil {
		t.Errorf("mirror without a rule = %+v, want none", m)
	}
	seen := sets.New[int]()
	for _, user := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		c := choose("others", user)
		seen.Insert(c.Backend)
		if (c.Mirror == nil) != (c.Backend == 1) {
			t.Errorf("user %s: backend %d, mirror %+v, want a mirror only for the backend 0", user, c.Backend, c.Mirror)
		}
	}
	if seen.Len() != 2 {
		t.Errorf("backends of all users = %v, want 2", seen)
	}
	if m := choose("others", "a"); m.Mirror != nil && m.Mirror.Percent != 100 {
		t.Errorf("default percent = %d, want 100", m.Mirror.Percent)
	}
	only := compile(t, strings.Replace(mirrored, "{name: old}, {name: new}]", "{name: old}]", 1))
	if used := only.InUse(); !used[0] || used[1] {
		t.Errorf("InUse() = %v, want only the first backend", used)
	}
	for _, w := range Warnings(decode(t, strings.Replace(mirrored, "{name: old}, {name: new}]", "{name: old}]", 1))) {
		t.Errorf("warning %q, want none", w)
	}
}

// A copy of any other request could change data.
func TestA46OnlyReadsMayBeMirrored(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /apis/example.com/v1/namespaces/a/widgets":                           true,
		"GET /apis/example.com/v1/namespaces/a/widgets/w":                         true,
		"GET /apis/example.com/v1/namespaces/a/widgets/w/status":                  true,
		"GET /apis/example.com/v1/namespaces/a/widgets/w/scale":                   true,
		"GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/*/m":           true,
		"GET /apis/external.metrics.k8s.io/v1beta1/namespaces/a/m":                true,
		"GET /apis/example.com/v1/namespaces/a/widgets?watch=1":                   false,
		"GET /apis/example.com/v1/watch/namespaces/a/widgets":                     false,
		"GET /apis/example.com/v1/namespaces/a/widgets/w/exec":                    false,
		"GET /apis/example.com/v1/namespaces/a/widgets/w/proxy/x":                 false,
		"GET /apis/example.com/v1/namespaces/a/widgets/w/restart":                 false,
		"GET /apis/example.com/v1/proxy/namespaces/a/widgets/w":                   false,
		"POST /apis/example.com/v1/namespaces/a/widgets":                          false,
		"PUT /apis/example.com/v1/namespaces/a/widgets/w":                         false,
		"PATCH /apis/example.com/v1/namespaces/a/widgets/w":                       false,
		"DELETE /apis/example.com/v1/namespaces/a/widgets":                        false,
		"DELETE /apis/example.com/v1/namespaces/a/widgets/w":                      false,
		"POST /apis/example.com/v1/namespaces/a/widgets/w/status":                 false,
		"OPTIONS /apis/example.com/v1/namespaces/a/widgets/w":                     false,
		"PROPFIND /apis/example.com/v1/namespaces/a/widgets/w":                    false,
		"DELETE /apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/web/metric": false,
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := ask(t, method, target, "u", nil).MayMirror(); got != want {
			t.Errorf("MayMirror of %s = %v, want %v", request, got, want)
		}
	}
}

func TestMirrorAndRollbackAreValidated(t *testing.T) {
	const head = "metadata: {name: v1.example.com}\nspec:\n  backends: [{name: a}, {name: b, service: {namespace: n, name: b}}]\n  rules:\n  - {name: r, backendRefs: "
	for rest, want := range map[string]string{
		"[{name: a}], mirror: {backend: b}}":                                                                    "",
		"[{name: a}, {name: b}], mirror: {backend: b, percent: 0, ignore: [metadata.labels]}}":                  "",
		"[{name: a}], mirror: {backend: ''}}":                                                                   "spec.rules[0].mirror.backend: Required",
		"[{name: a}], mirror: {backend: c}}":                                                                    "spec.rules[0].mirror.backend: Not found",
		"[{name: b}], mirror: {backend: b}}":                                                                    "spec.rules[0].mirror.backend: Invalid value: \"b\": is the only backend of the rule",
		"[{name: a, weight: 0}, {name: b}], mirror: {backend: b}}":                                              "spec.rules[0].mirror.backend: Invalid value: \"b\": is the only backend of the rule",
		"[{name: a}], mirror: {backend: b, percent: 101}}":                                                      "spec.rules[0].mirror.percent: Invalid value: 101",
		"[{name: a}], mirror: {backend: b, percent: -1}}":                                                       "spec.rules[0].mirror.percent: Invalid value: -1",
		"[{name: a}], mirror: {backend: b, ignore: [a..b]}}":                                                    "spec.rules[0].mirror.ignore[0]: Invalid value",
		"[{name: a}], mirror: {backend: b, ignore: ['items[0]']}}":                                              "spec.rules[0].mirror.ignore[0]: Invalid value",
		"[{name: a}], mirror: {backend: b, ignore: ['']}}":                                                      "spec.rules[0].mirror.ignore[0]: Required",
		"[{name: a}, {name: b}], rollback: {errorPercent: 5}}":                                                  "",
		"[{name: a}, {name: b}], rollback: {errorPercent: 100, minRequests: 1, interval: 1h}}":                  "",
		"[{name: a}], rollback: {errorPercent: 5}}":                                                             "spec.rules[0].rollback: Forbidden",
		"[{name: a}, {name: b}], rollback: {errorPercent: 0}}":                                                  "spec.rules[0].rollback.errorPercent: Invalid value: 0",
		"[{name: a}, {name: b}], rollback: {errorPercent: 101}}":                                                "spec.rules[0].rollback.errorPercent: Invalid value: 101",
		"[{name: a}, {name: b}], rollback: {errorPercent: 5, minRequests: 0}}":                                  "spec.rules[0].rollback.minRequests: Invalid value: 0",
		"[{name: a}, {name: b}], rollback: {errorPercent: 5, interval: 0s}}":                                    "spec.rules[0].rollback.interval: Invalid value",
		"[{name: a}, {name: b}], rollback: {errorPercent: 5, interval: 2h}}":                                    "spec.rules[0].rollback.interval: Invalid value",
		"[{name: a}], matches: [{access: Write}], mirror: {backend: b}}":                                        "warning: rule r: mirror has no effect: the rule matches writes only",
		"[{name: a}, {name: b, weight: 0}], rollback: {errorPercent: 5}, mirror: {backend: b}}":                 "warning: rule r: rollback has no effect",
		"[{name: a}, {name: b}], matches: [{access: Read}], mirror: {backend: b}, rollback: {errorPercent: 5}}": "",
	} {
		o := decode(t, head+rest)
		var got []string
		for _, err := range Validate(o) {
			got = append(got, err.Error())
		}
		if len(got) == 0 {
			for _, w := range Warnings(o) {
				got = append(got, "warning: "+w)
			}
		}
		if text := strings.Join(got, "; "); len(got) > 1 || !strings.HasPrefix(text, want) || (want == "") != (text == "") {
			t.Errorf("errors or warnings of %s = %q, want the prefix %q", rest, text, want)
		}
	}
}
