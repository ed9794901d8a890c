package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/run"
)

const (
	// requestInterval is the interval at which each client sends, whether or not earlier requests have completed.
	requestInterval = 200 * time.Millisecond
	// slots bounds the in-flight requests of one client.
	slots = 6
	// serverPatience is the timeout parameter of requests, like kubectl --request-timeout.
	serverPatience = "3s"
	// clientPatience is the timeout of a client, for servers that ignore the timeout parameter.
	clientPatience = 6 * time.Second
	// maxAnswer bounds the size of a response that is read.
	maxAnswer = 16 << 20

	jsonType      = "application/json"
	discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// cutShort is the failure of a truncated response that ended like a complete one.
const cutShort = "cut short without an error"

// call describes a request to send.
type call struct {
	who, verb          string
	method, path, body string
	accept             string
	throughHeader      bool
	saw                func(header http.Header, body []byte) string
}

// traffic is the set of clients of one drill. It does not retry, so that every failure is visible.
type traffic struct {
	client  *http.Client
	base    string
	record  *recorder
	clients []func(ctx context.Context, n int)
	wg      sync.WaitGroup
}

// start sends requests until ctx ends. wait returns when every request has completed.
func (t *traffic) start(ctx context.Context) {
	for i, client := range t.clients {
		t.wg.Go(func() { t.run(ctx, client, time.Duration(i)*requestInterval/time.Duration(len(t.clients))) })
	}
}

func (t *traffic) wait() { t.wg.Wait() }

// run calls a client at every requestInterval. The clients start at different offsets to avoid bursts.
func (t *traffic) run(ctx context.Context, client func(context.Context, int), offset time.Duration) {
	if !run.Pause(ctx, offset) {
		return
	}
	ticker := time.NewTicker(requestInterval)
	defer ticker.Stop()
	free := make(chan struct{}, slots)
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; ; n++ {
		select {
		case free <- struct{}{}:
			wg.Go(func() {
				defer func() { <-free }()
				client(ctx, n)
			})
		default: // all slots hang, and their requests are recorded anyway
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// send sends one request and records it, unless the drill ended before the response.
func (t *traffic) send(ctx context.Context, c call) Request {
	r := Request{Who: c.who, Verb: c.verb, Start: time.Now()}
	bounded, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	t.do(bounded, c, &r)
	r.Took = time.Since(r.Start)
	if errors.Is(bounded.Err(), context.DeadlineExceeded) && r.Failure != "" {
		r.Failure = fmt.Sprintf("no answer within %s", clientPatience)
	}
	if ctx.Err() == nil {
		t.record.add(r)
	}
	return r
}

func (t *traffic) do(ctx context.Context, c call, r *Request) {
	req, err := http.NewRequestWithContext(ctx, c.method, t.base+c.path, strings.NewReader(c.body))
	if err != nil {
		r.Failure = err.Error()
		return
	}
	if c.body == "" {
		req.Body, req.ContentLength, req.GetBody = http.NoBody, 0, nil
	} else {
		req.Header.Set("Content-Type", jsonType)
	}
	req.Header.Set("Accept", jsonType)
	if c.accept != "" {
		req.Header.Set("Accept", c.accept)
	}
	if c.throughHeader {
		req.Header.Set(backendHeader, OtherBackend)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		r.Failure = err.Error()
		return
	}
	defer resp.Body.Close()
	r.Code = resp.StatusCode
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		r.Failure = "broken off: " + err.Error()
	case strings.HasPrefix(resp.Header.Get("Content-Type"), jsonType) && !json.Valid(body):
		r.Failure = cutShort
	case resp.StatusCode >= http.StatusBadRequest:
		r.Reason, r.Message = refusal(body)
	case c.saw != nil:
		r.Saw = c.saw(resp.Header, body)
	}
}

// refusal parses a Status. For other bodies, such as the plain text of kube-apiserver's proxy, it returns the text as
// the message.
func refusal(body []byte) (reason, message string) {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		return "", strings.TrimSpace(fmt.Sprintf("%.300s", body))
	}
	return string(status.Reason), status.Message
}

// clients returns the clients that send the traffic of every drill.
func (s *Stage) clients() []func(context.Context, int) {
	t := s.traffic
	clients := []func(context.Context, int){
		func(ctx context.Context, _ int) { t.send(ctx, s.discoveryCall()) },
		func(ctx context.Context, _ int) {
			t.send(ctx, call{who: OpenAPI, verb: "get", method: http.MethodGet, path: "/openapi/v3"})
		},
		func(ctx context.Context, _ int) {
			t.send(ctx, component{who: Local}.read("get", "/api/v1/namespaces/"+s.Namespace))
		},
		s.writer(component{who: Local}, "/api/v1/namespaces/"+s.Namespace+"/configmaps", configMap),
	}
	for _, p := range s.components() {
		collection := p.collection(s.Namespace)
		clients = append(clients,
			func(ctx context.Context, _ int) { t.send(ctx, p.read("list", collection)) },
		)
		if !p.stores {
			clients = append(clients, func(ctx context.Context, _ int) { t.send(ctx, p.read("get", collection+"/any")) })
			continue
		}
		clients = append(clients,
			func(ctx context.Context, _ int) { t.send(ctx, p.read("get", collection+"/kept")) },
			s.writer(p, collection, p.typed()),
		)
	}
	return clients
}

func (p component) read(verb, path string) call {
	return call{who: p.who, verb: verb, method: http.MethodGet, path: path + "?timeout=" + serverPatience, throughHeader: p.throughHeader}
}

// writer returns a client that creates an object and deletes it again.
func (s *Stage) writer(p component, collection, typed string) func(context.Context, int) {
	return func(ctx context.Context, n int) {
		name := fmt.Sprintf("traffic-%d", n)
		created := s.traffic.send(ctx, call{
			who: p.who, verb: "create", method: http.MethodPost, path: collection + "?timeout=" + serverPatience,
			body: fmt.Sprintf(`{%s,"metadata":{"name":%q}}`, typed, name), throughHeader: p.throughHeader,
		})
		if created.OK() {
			s.traffic.send(ctx, call{
				who: p.who, verb: "delete", method: http.MethodDelete, path: collection + "/" + name + "?timeout=" + serverPatience,
				throughHeader: p.throughHeader,
			})
		}
	}
}

// States of the subject in a discovery document.
const (
	listed  = "current with its resources"
	emptied = "current without resources"
	stale   = "stale"
	absent  = "absent"
)

func (s *Stage) discoveryCall() call {
	return call{
		who: Discovery, verb: "get", method: http.MethodGet, path: "/apis", accept: discoveryType,
		saw: func(_ http.Header, body []byte) string { return standing(body, s.subject.group) },
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

// component is one of the extension servers, or Clusters, from the point of view of its clients.
type component struct {
	who, group string
	stores     bool
	// cluster is the name of a Cluster, which has a namespace of the same name. Empty for an extension server.
	cluster string
	// throughHeader makes clients select the backend with a header.
	throughHeader bool
}

// backendHeader is the header that selects the other backend of an APIRoute.
const backendHeader = "X-Drill-Backend"

// actors returns the components that are registered.
func (s *Stage) actors() []*actor { return []*actor{s.subject, s.bystander} }

func (s *Stage) components() []component {
	all := []component{s.subject.component, s.bystander.component}
	if s.other != nil {
		all = append(all, s.other.component)
	}
	return all
}

func (p component) plural() string {
	if p.stores {
		return "widgets"
	}
	return "readings"
}

// path returns the path of the API of a Cluster.
func (p component) path() string { return "/clusters/" + p.cluster }

// typed returns the type of the objects that clients create, as fields in JSON.
func (p component) typed() string {
	if p.cluster != "" {
		return configMap
	}
	return fmt.Sprintf(`"kind":"Widget","apiVersion":"%s/v1"`, p.group)
}

const configMap = `"kind":"ConfigMap","apiVersion":"v1"`

func (p component) collection(namespace string) string {
	if p.cluster != "" {
		return p.path() + "/api/v1/namespaces/" + p.cluster + "/configmaps"
	}
	return strings.Join([]string{"/apis", p.group, "v1/namespaces", namespace, p.plural()}, "/")
}
