package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// clients are what the clients of a drill do all the time.
func (s *Stage) clients() []func(context.Context, int) {
	t := s.traffic
	clients := []func(context.Context, int){
		func(ctx context.Context, _ int) { t.send(ctx, s.discoveryCall()) },
		func(ctx context.Context, _ int) {
			t.send(ctx, call{who: OpenAPI, verb: "get", method: http.MethodGet, path: "/openapi/v3"})
		},
		func(ctx context.Context, _ int) {
			t.send(ctx, s.read(Local, "get", "/api/v1/namespaces/"+s.Namespace))
		},
		s.writer(Local, "/api/v1/namespaces/"+s.Namespace+"/configmaps", `"kind":"ConfigMap","apiVersion":"v1"`),
	}
	for _, p := range s.components() {
		collection := p.collection(s.Namespace)
		clients = append(clients,
			func(ctx context.Context, _ int) { t.send(ctx, s.read(p.who, "list", collection)) },
		)
		if !p.stores {
			clients = append(clients, func(ctx context.Context, _ int) { t.send(ctx, s.read(p.who, "get", collection+"/any")) })
			continue
		}
		clients = append(clients,
			func(ctx context.Context, _ int) { t.send(ctx, s.read(p.who, "get", collection+"/kept")) },
			s.writer(p.who, collection, fmt.Sprintf(`"kind":"Widget","apiVersion":"%s/v1"`, p.group)),
		)
	}
	return clients
}

func (s *Stage) read(who, verb, path string) call {
	return call{who: who, verb: verb, method: http.MethodGet, path: path + "?timeout=" + serverPatience}
}

// writer creates an object and deletes it again.
func (s *Stage) writer(who, collection, typed string) func(context.Context, int) {
	return func(ctx context.Context, n int) {
		name := fmt.Sprintf("traffic-%d", n)
		created := s.traffic.send(ctx, call{
			who: who, verb: "create", method: http.MethodPost, path: collection + "?timeout=" + serverPatience,
			body: fmt.Sprintf(`{%s,"metadata":{"name":%q}}`, typed, name),
		})
		if created.OK() {
			s.traffic.send(ctx, call{
				who: who, verb: "delete", method: http.MethodDelete, path: collection + "/" + name + "?timeout=" + serverPatience,
			})
		}
	}
}

// How the subject can stand in a discovery document.
const (
	listed  = "current with its resources"
	emptied = "current without resources"
	stale   = "stale"
	absent  = "absent"
)

func (s *Stage) discoveryCall() call {
	return call{
		who: Discovery, verb: "get", method: http.MethodGet, path: "/apis", accept: discoveryType,
		saw: func(body []byte) string { return standing(body, s.subject.group) },
	}
}

func standing(body []byte, group string) string {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return "a document that does not parse"
	}
	for _, g := range list.Items {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			switch {
			case v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale:
				return stale
			case len(v.Resources) == 0:
				return emptied
			}
			return listed
		}
	}
	return absent
}

// component is one of the two extension servers, as its clients know it.
type component struct {
	who, group string
	stores     bool
}

func (s *Stage) actors() []*actor { return []*actor{s.subject, s.bystander} }

func (s *Stage) components() []component {
	return []component{s.subject.component, s.bystander.component}
}

func (p component) plural() string {
	if p.stores {
		return "widgets"
	}
	return "readings"
}

func (p component) collection(namespace string) string {
	return strings.Join([]string{"/apis", p.group, "v1/namespaces", namespace, p.plural()}, "/")
}
