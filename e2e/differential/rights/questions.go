package rights

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	// dry makes a write a dry run.
	dry = "?dryRun=All&fieldManager=rights"
	// one limits lists.
	one = "?limit=1"
	// watching bounds the duration of watches.
	watching = "watch=true&timeoutSeconds=20"
	// byName selects the sample, so that permissions restricted to its name apply.
	byName = "fieldSelector=metadata.name%3D" + sampled
	// unlabelled selects a label that no object has.
	unlabelled = "labelSelector=nobody%3Dhas-it"
)

// grid collects the requests of a persona.
type grid struct {
	environment *environment
	few         bool
	out         []question
	// errors reports kinds without a sample.
	errors []error
}

// shape contains the properties of a persona that determine its requests.
type shape struct{ few, bound bool }

// questions returns the requests of one persona about the given resources. Their order does not matter.
func (w *environment) questions(all []resource, p persona) ([]question, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	s := shape{p.Few, p.bound()}
	if known, ok := w.asked[s]; ok {
		return known, nil
	}
	out, err := w.grid(all, s)
	if err != nil {
		return nil, err
	}
	for i := range out { // once, not for each persona
		if out[i].Body == nil {
			continue
		}
		text, err := json.Marshal(out[i].Body)
		if err != nil {
			return nil, err
		}
		out[i].Body = json.RawMessage(text)
	}
	w.asked[s] = out
	return out, nil
}

func (w *environment) grid(all []resource, s shape) ([]question, error) {
	g := &grid{environment: w, few: s.few}
	namespaces := []string{own}
	if s.bound {
		namespaces = append(namespaces, foreign)
	}
	for _, r := range all {
		if !r.Namespaced {
			g.collection(r, "")
			continue
		}
		if r.may("list") {
			g.add(question{Name: "list all " + r.String(), Method: http.MethodGet, Path: r.at("") + one})
			g.add(question{Name: "watch all " + r.String(), Method: http.MethodGet, Path: r.at("") + "?" + watching, Watch: true})
		}
		for _, namespace := range namespaces {
			g.collection(r, namespace)
		}
	}
	g.paths()
	g.self(namespaces)
	return g.out, errors.Join(g.errors...)
}

func (g *grid) add(q question) { g.out = append(g.out, q) }

// collection adds the requests about one resource in one namespace.
func (g *grid) collection(r resource, namespace string) {
	at := r.at(namespace)
	where := ""
	if namespace != "" {
		where = " in " + namespace
	}
	add := func(verb, method, path, kind string, body any) {
		g.add(question{Name: verb + " " + r.String() + where, Method: method, Path: path, Type: kind, Body: body})
	}
	s, ok := g.environment.samples[at]
	if !ok {
		if r.may("create") || r.may("update") {
			g.errors = append(g.errors, fmt.Errorf("objects.yaml has no sample at %s", at))
			return
		}
		s = sample{manifest: manifest{at, map[string]any{"metadata": map[string]any{"name": sampled}}}}
	}
	object := s.whole(r)
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	another := renamed(object, absent)
	most := g.most(namespace)
	if r.may("list") {
		add("list", "GET", at+one, "", nil)
		g.add(question{Name: "watch " + r.String() + where, Method: "GET", Path: at + "?" + watching, Watch: true})
		if most {
			add("list one of", "GET", at+one+"&"+byName, "", nil)
			g.add(question{Name: "watch one of " + r.String() + where, Method: "GET", Path: at + "?" + watching + "&" + byName, Watch: true})
		}
	}
	if r.may("get") {
		add("get", "GET", at+"/"+name, "", nil)
		if most {
			add("get absent", "GET", at+"/"+absent, "", nil)
		}
	}
	if r.may("create") {
		body := another
		if !r.may("get") { // a review, which has no name
			body = object
		}
		add("create", "POST", at+dry, "", body)
	}
	if r.may("update") {
		add("update", "PUT", at+"/"+name+dry, "", object)
		if most {
			add("update absent", "PUT", at+"/"+absent+dry, "", another)
		}
	}
	if r.may("patch") {
		g.patches(r.String()+where, at+"/"+name, object, most)
		if most {
			add("apply absent", "PATCH", at+"/"+absent+dry, applyPatch, another)
		}
	}
	if r.may("delete") {
		add("delete", "DELETE", at+"/"+name+dry, "", nil)
		if most {
			add("delete absent", "DELETE", at+"/"+absent+dry, "", nil)
		}
	}
	if r.may("deletecollection") {
		add("delete all", "DELETE", at+dry+"&"+unlabelled, "", nil)
	}
	for _, b := range r.Below {
		g.below(r, b, at+"/"+name, where, object, most)
	}
}

// most reports whether all requests are sent. In the other namespace, and for personas with few requests, each
// permission is tested once, with one patch type and one name.
func (g *grid) most(namespace string) bool { return !g.few && namespace != foreign }

// below adds the requests about a subresource, with supported and unsupported verbs.
func (g *grid) below(r, b resource, at, where string, object map[string]any, most bool) {
	path := at + "/" + b.Name
	target := r.String() + "/" + b.Name + where
	body := object
	if s, ok := g.environment.samples[path]; ok {
		body = s.whole(b)
	} else if b.Kind == "Scale" {
		body = map[string]any{"apiVersion": b.groupVersion(), "kind": b.Kind, "metadata": map[string]any{"name": sampled}, "spec": map[string]any{"replicas": 1}}
	} else if b.Kind != r.Kind && b.may("create") && !slices.Contains([]string{"NodeProxyOptions", "PodExecOptions", "PodAttachOptions", "PodPortForwardOptions", "PodProxyOptions", "ServiceProxyOptions"}, b.Kind) {
		g.errors = append(g.errors, fmt.Errorf("objects.yaml has no sample at %s", path))
	}
	add := func(verb, method, path, kind string, body any) {
		g.add(question{Name: verb + " " + target, Method: method, Path: path, Type: kind, Body: body})
	}
	add("get", "GET", path, "", nil)
	add("create", "POST", path+dry, "", body)
	add("update", "PUT", path+dry, "", body)
	g.patches(target, path, body, most)
	add("delete", "DELETE", path+dry, "", nil)
}

// patches adds requests with one patch type, or with all of them.
func (g *grid) patches(target, at string, object map[string]any, every bool) {
	add := func(verb, kind string, body any) {
		g.add(question{Name: verb + " " + target, Method: http.MethodPatch, Path: at + dry, Type: kind, Body: body})
	}
	add("merge patch", mergePatch, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"patched": "yes"}}})
	if !every {
		return
	}
	add("JSON patch", jsonPatch, []any{map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{"patched": "yes"}}})
	add("strategic patch", strategicPatch, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"patched": "yes"}}})
	metadata, _ := object["metadata"].(map[string]any)
	add("apply", applyPatch, map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"],
		"metadata": map[string]any{"name": metadata["name"], "annotations": map[string]any{"patched": "yes"}}})
}

// whole returns the object with its kind and metadata.
func (s sample) whole(r resource) map[string]any {
	object := copyOf(s.Object)
	if object["kind"] == nil {
		object["kind"], object["apiVersion"] = r.Kind, r.groupVersion()
	}
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{}
	}
	return object
}

func renamed(object map[string]any, name string) map[string]any {
	out := copyOf(object)
	out["metadata"].(map[string]any)["name"] = name
	return out
}

// paths adds the requests for paths that are not resources.
func (g *grid) paths() {
	for _, path := range []string{
		"/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/healthz/ping", "/livez", "/livez/ping", "/readyz", "/readyz/ping",
		"/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/.well-known/openid-configuration", "/openid/v1/jwks",
		"/debug/pprof/", "/debug/pprof/cmdline", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_priority_levels", "/logs", "/statusz", "/flagz", "/configz", "/nowhere",
	} {
		g.add(question{Name: "path " + path, Method: http.MethodGet, Path: path})
	}
	g.add(question{Name: "path /healthz by POST", Method: http.MethodPost, Path: "/healthz", Body: map[string]any{}})
	g.add(question{Name: "path /metrics by DELETE", Method: http.MethodDelete, Path: "/metrics"})
	g.add(question{Name: "path /debug/flags/v by PUT", Method: http.MethodPut, Path: "/debug/flags/v", Body: "0"})
}

// self adds the requests about the persona's identity and permissions.
func (g *grid) self(namespaces []string) {
	g.add(question{Name: "who am I", Method: "POST", Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Lines: whoAmI,
		Body: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}})
	for _, namespace := range append(namespaces, "kube-system") {
		g.add(question{Name: "my rules in " + namespace, Method: "POST", Path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Lines: rules,
			Body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": map[string]any{"namespace": namespace}}})
	}
}

func whoAmI(body any) []string {
	user, _ := at(body, "status", "userInfo").(map[string]any)
	out := []string{fmt.Sprint("name ", user["username"]), fmt.Sprint("uid ", user["uid"])}
	for _, group := range texts(user["groups"]) {
		out = append(out, "group "+group)
	}
	extra, _ := user["extra"].(map[string]any)
	for key, values := range extra {
		out = append(out, "extra "+key+" "+strings.Join(texts(values), ","))
	}
	return out
}

// rules returns the rules of a SelfSubjectRulesReview, each with one verb and one resource.
func rules(body any) []string {
	var out []string
	if said, _ := at(body, "status", "evaluationError").(string); said != "" {
		out = append(out, "error "+said)
	}
	if at(body, "status", "incomplete") == true {
		out = append(out, "incomplete")
	}
	every, _ := at(body, "status", "resourceRules").([]any)
	for _, r := range every {
		names := texts(at(r, "resourceNames"))
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range texts(at(r, "verbs")) {
			for _, group := range texts(at(r, "apiGroups")) {
				for _, resource := range texts(at(r, "resources")) {
					for _, name := range names {
						out = append(out, strings.TrimSpace(verb+" "+resource+"."+group+" "+name))
					}
				}
			}
		}
	}
	paths, _ := at(body, "status", "nonResourceRules").([]any)
	for _, r := range paths {
		for _, verb := range texts(at(r, "verbs")) {
			for _, path := range texts(at(r, "nonResourceURLs")) {
				out = append(out, verb+" "+path)
			}
		}
	}
	return out
}

// at returns the value at a path of names.
func at(body any, path ...string) any {
	for _, name := range path {
		inner, _ := body.(map[string]any)
		body = inner[name]
	}
	return body
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, one := range list {
		out = append(out, fmt.Sprint(one))
	}
	return out
}
