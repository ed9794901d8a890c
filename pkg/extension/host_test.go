package extension_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"crypto/tls"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/pkg/extension"
)

const queuesPath = "/apis/stats.example.com/v1/queues"

const tableAccept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

func twoQueues() *queues {
	return &queues{items: []Queue{
		queue("team-b", "mails", 7, "tier=slow"),
		queue("team-a", "orders", 3, "tier=fast"),
	}}
}

// pretty makes golden files readable and hides versions, because they differ between runs.
func pretty(t *testing.T, body []byte) []byte {
	t.Helper()
	var v any
	must(t, json.Unmarshal(body, &v))
	hideVersions(v)
	out, err := json.MarshalIndent(v, "", "  ")
	must(t, err)
	return append(out, '\n')
}

func hideVersions(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["resourceVersion"].(string); ok {
			v["resourceVersion"] = "N"
		}
		for _, inner := range v {
			hideVersions(inner)
		}
	case []any:
		for _, inner := range v {
			hideVersions(inner)
		}
	}
}

func TestGoldenDocuments(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	const aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	for _, c := range []struct{ file, path, accept string }{
		{"discovery-groups.json", "/apis", ""},
		{"discovery-group.json", "/apis/stats.example.com", ""},
		{"discovery-resources.json", "/apis/stats.example.com/v1", ""},
		{"discovery-aggregated.json", "/apis", aggregated},
		{"openapi-v3.json", "/openapi/v3/apis/stats.example.com/v1", ""},
		{"openapi-v2.json", "/openapi/v2", ""},
		{"list.json", queuesPath, ""},
		{"list-metadata.json", queuesPath, "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		{"table.json", queuesPath, tableAccept},
		{"table-object.json", queuesPath + "?includeObject=Object&labelSelector=tier=fast", tableAccept},
		{"table-one.json", "/apis/stats.example.com/v1/namespaces/team-a/queues/orders?includeObject=None", tableAccept},
	} {
		t.Run(c.file, func(t *testing.T) {
			a := s.get(c.path)
			if c.accept != "" {
				a = s.get(c.path, c.accept)
			}
			a.wants(t, http.StatusOK)
			golden(t, c.file, pretty(t, a.body))
		})
	}
}

func TestDocumentsAreRevalidatedByETag(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	const aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/apis", "/openapi/v3", "/openapi/v3/apis/stats.example.com/v1", "/openapi/v2"} {
		first := s.get(path, aggregated)
		first.wants(t, http.StatusOK)
		tag := first.Header.Get("ETag")
		if tag == "" || first.Header.Get("Vary") != "Accept" {
			t.Fatalf("GET %s: ETag = %q, Vary = %q, want an ETag and Vary: Accept", path, tag, first.Header.Get("Vary"))
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag} {
			if a := s.get(path, aggregated, "If-None-Match: "+known); a.StatusCode != http.StatusNotModified || len(a.body) > 0 {
				t.Errorf("GET %s with If-None-Match %s = %d with %d bytes, want 304 without a body", path, known, a.StatusCode, len(a.body))
			}
		}
		s.get(path, aggregated, `If-None-Match: "other"`).wants(t, http.StatusOK)
	}
	if got := s.get("/apis", aggregated).Header.Get("Content-Type"); got != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" {
		t.Errorf("Content-Type of /apis = %q, want aggregated discovery in v2", got)
	}
}

func TestOpenAPIWithHashIsImmutable(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	must(t, json.Unmarshal(s.get("/openapi/v3").body, &index))
	url := index.Paths["apis/stats.example.com/v1"].ServerRelativeURL
	if a := s.get(url); a.StatusCode != http.StatusOK || a.Header.Get("Cache-Control") != "public, immutable" || a.Header.Get("Expires") == "" {
		t.Errorf("GET %s = %d, header %v, want 200 with an immutable Cache-Control and Expires", url, a.StatusCode, a.Header)
	}
	// A stale hash is served and not redirected, because front doors refuse redirects.
	if a := s.get("/openapi/v3/apis/stats.example.com/v1?hash=OLD"); a.StatusCode != http.StatusOK || a.Header.Get("Cache-Control") != "public" {
		t.Errorf("GET with a stale hash = %d, header %v, want 200 with Cache-Control: public", a.StatusCode, a.Header)
	}
}

func TestReads(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	for _, c := range []struct {
		situation, path, accept string
		code                    int
		want, wantNot           string
	}{
		{situation: "all namespaces", path: queuesPath, code: 200, want: `"orders"`},
		{situation: "one namespace", path: "/apis/stats.example.com/v1/namespaces/team-a/queues", code: 200, want: `"orders"`, wantNot: `"mails"`},
		{situation: "one object", path: "/apis/stats.example.com/v1/namespaces/team-b/queues/mails", code: 200, want: `"depth":7`},
		{situation: "object in another namespace", path: "/apis/stats.example.com/v1/namespaces/team-a/queues/mails", code: 404,
			want: `queues.stats.example.com \"mails\" not found`},
		{situation: "object of a namespaced resource without namespace", path: queuesPath + "/mails", code: 404, want: `"reason":"NotFound"`},
		{situation: "unknown resource", path: "/apis/stats.example.com/v1/stacks", code: 404, want: `"reason":"NotFound"`},
		{situation: "unknown version", path: "/apis/stats.example.com/v2/queues", code: 404},
		{situation: "unknown group", path: "/apis/other.example.com/v1", code: 404, want: `"kind":"Status"`},
		{situation: "subresource", path: "/apis/stats.example.com/v1/namespaces/team-b/queues/mails/status", code: 404},
		{situation: "unknown path", path: "/favicon.ico", code: 404, want: `"kind":"Status"`},
		{situation: "legacy root", path: "/api", code: 404, want: `"kind":"Status"`},
		{situation: "label selector", path: queuesPath + "?labelSelector=tier+in+(fast)", code: 200, want: `"orders"`, wantNot: `"mails"`},
		{situation: "label selector that does not parse", path: queuesPath + "?labelSelector=a+b", code: 400, want: `labelSelector`},
		{situation: "field selector by name", path: queuesPath + "?fieldSelector=metadata.name%3Dmails", code: 200, want: `"mails"`, wantNot: `"orders"`},
		{situation: "field selector by name that differs", path: queuesPath + "?fieldSelector=metadata.name!%3Dmails", code: 200, want: `"orders"`, wantNot: `"mails"`},
		{situation: "field selector by namespace", path: queuesPath + "?fieldSelector=metadata.namespace%3Dteam-a", code: 200, want: `"orders"`, wantNot: `"mails"`},
		{situation: "declared field selector", path: queuesPath + "?fieldSelector=owner.team%3D", code: 200, want: `"orders"`},
		{situation: "unknown field selector", path: queuesPath + "?fieldSelector=spec.x%3Dy", code: 400,
			want: `\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\", \"owner.team\"`},
		{situation: "YAML", path: queuesPath, accept: "application/yaml", code: 200, want: "kind: QueueList"},
		{situation: "protobuf only, of a type without protobuf", path: queuesPath, accept: "application/vnd.kubernetes.protobuf", code: 406, want: "NotAcceptable"},
		{situation: "protobuf or else JSON", path: queuesPath, accept: "application/vnd.kubernetes.protobuf,application/json", code: 200, want: `"kind":"QueueList"`},
		{situation: "CBOR only", path: queuesPath, accept: "application/cbor", code: 406},
		{situation: "metadata of one", path: "/apis/stats.example.com/v1/namespaces/team-b/queues/mails",
			accept: "application/vnd.kubernetes.protobuf;as=Nonsense;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			code:   200, want: `"kind":"PartialObjectMetadata"`, wantNot: "depth"},
		{situation: "unknown includeObject", path: queuesPath + "?includeObject=Some", code: 400, want: "includeObject"},
		{situation: "version that is no number", path: queuesPath + "?resourceVersion=abc", code: 400},
		{situation: "version from the future", path: queuesPath + "?resourceVersion=18446744073709551615", code: 504, want: "ResourceVersionTooLarge"},
		{situation: "exact version from the past", path: queuesPath + "?resourceVersion=5&resourceVersionMatch=Exact", code: 410, want: `"reason":"Expired"`},
		{situation: "any version", path: queuesPath + "?resourceVersion=0&limit=500", code: 200, want: `"orders"`},
		{situation: "version match without version", path: queuesPath + "?resourceVersionMatch=Exact", code: 422},
		{situation: "initial events of a list", path: queuesPath + "?sendInitialEvents=true", code: 422},
		{situation: "continue token that we never gave", path: queuesPath + "?continue=abc", code: 400},
		{situation: "encoded traversal", path: "/apis/stats.example.com/v1/namespaces/team-a%2f..%2fteam-b/queues", code: 400, want: `"reason":"BadRequest"`},
		{situation: "version document", path: "/version", code: 200, want: "gitVersion"},
		{situation: "metrics", path: "/metrics", code: 200, want: "apiserver_request_total"},
		{situation: "root", path: "/", code: 200, want: "/apis/stats.example.com/v1"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var headers []string
			if c.accept != "" {
				headers = append(headers, "Accept: "+c.accept)
			}
			a := s.get(c.path, headers...)
			a.wants(t, c.code, c.want)
			if c.wantNot != "" && strings.Contains(string(a.body), c.wantNot) {
				t.Errorf("response body = %s, want it without %q", a.body, c.wantNot)
			}
		})
	}
}

// A byte such as "|" makes net/url escape a path again, and an escaped slash becomes a slash. The server checks the path that the
// client sent.
func TestA16EscapedSlashWithAnotherByteIsRejected(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
	must(t, err)
	r.Header.Set("X-Test-User", "alice")
	r.URL.Opaque = "/apis/stats.example.com/v1/namespaces/team-a%2Fqueues|"
	response, err := s.client.Do(r)
	must(t, err)
	must(t, response.Body.Close())
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("GET %s = %s, want 400", r.URL.Opaque, response.Status)
	}
}

func TestUnsupportedVerbsReturn405(t *testing.T) {
	nowatch := queueDefinition()
	nowatch.PollInterval = 0
	s := start(t, nil, extension.Of(nowatch, twoQueues()))
	one := "/apis/stats.example.com/v1/namespaces/team-b/queues/mails"
	for _, c := range []struct{ situation, method, path, action string }{
		{"watch of a resource that cannot be watched", http.MethodGet, queuesPath + "?watch=true", "watch"},
		{"create", http.MethodPost, "/apis/stats.example.com/v1/namespaces/team-b/queues", "post"},
		{"update", http.MethodPut, one, "put"},
		{"patch", http.MethodPatch, one, "patch"},
		{"delete", http.MethodDelete, one, "delete"},
		{"delete of all", http.MethodDelete, queuesPath, "delete"},
		{"post to discovery", http.MethodPost, "/apis", "post"},
		{"post to health", http.MethodPost, "/livez", "post"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			s.do(c.method, c.path).wants(t, http.StatusMethodNotAllowed, `"reason":"MethodNotAllowed"`, `"message":"`+c.action+" is not supported")
		})
	}
	if a := s.get(queuesPath); strings.Contains(string(a.body), "resourceVersion") {
		t.Errorf("list of a resource that is not watchable = %s, want no resourceVersion", a.body)
	}
}

func TestProviderErrorsBecomeStatus(t *testing.T) {
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	q.fail(apierrors.NewServiceUnavailable("the broker is away"))
	s.get(queuesPath).wants(t, http.StatusServiceUnavailable, "the broker is away")
	q.fail(errors.New("disk on fire"))
	s.get(queuesPath).wants(t, http.StatusInternalServerError, `"reason":"InternalError"`, "disk on fire")
	q.fail(nil)
	s.get(queuesPath).wants(t, http.StatusOK)
}

func TestSlowSourceReturns504(t *testing.T) {
	list := extension.ListFunc[Queue](func(ctx context.Context, _ extension.Query) ([]Queue, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("ask the broker: %w", ctx.Err())
	})
	s := start(t, func(c *extension.Config) { c.RequestTimeout = 10 * time.Millisecond }, extension.Of(queueDefinition(), list))
	s.get(queuesPath).wants(t, http.StatusGatewayTimeout, `"reason":"Timeout"`)
}

func TestPanicsBecomeStatus(t *testing.T) {
	q := twoQueues()
	q.hold = func() { panic("provider bug") }
	s := start(t, nil, extension.Of(queueDefinition(), q))
	a := s.get(queuesPath)
	a.wants(t, http.StatusInternalServerError, `"kind":"Status"`)
	if strings.Contains(string(a.body), "provider bug") {
		t.Errorf("response after a panic = %s, want it without the panic value", a.body)
	}
	s.get("/metrics").wants(t, http.StatusOK, "portico_panics_total 1")
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	deny := func(u user.Info, info *apirequest.RequestInfo) bool { return u.GetName() == "mallory" }
	s := start(t, func(c *extension.Config) { c.Authorizer = byHeader{deny: deny} }, extension.Of(queueDefinition(), twoQueues()))
	for _, path := range []string{queuesPath, "/apis", "/openapi/v3", "/metrics", "/version", "/", "/nowhere"} {
		s.get(path, "X-Test-User: ").wants(t, http.StatusUnauthorized, `"reason":"Unauthorized"`)
		mallory := s.do(http.MethodGet, path, "X-Test-User: ", "x-test-user: mallory")
		mallory.wants(t, http.StatusForbidden, `"reason":"Forbidden"`, `User \"mallory\" cannot`, "extension server's own check")
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if a := s.get(path, "X-Test-User: "); a.StatusCode != http.StatusOK || string(a.body) != "ok" {
			t.Errorf("GET %s without credentials = %d %s, want 200 ok", path, a.StatusCode, a.body)
		}
	}
}

func TestFailedAuthorizationHidesInnerError(t *testing.T) {
	s := start(t, func(c *extension.Config) { c.Authorizer = byHeader{fail: errors.New("front door secret detail")} },
		extension.Of(queueDefinition(), twoQueues()))
	a := s.get(queuesPath)
	a.wants(t, http.StatusInternalServerError, `"kind":"Status"`)
	if strings.Contains(string(a.body), "secret detail") {
		t.Errorf("response to a failed authorization = %s, want it without the inner error", a.body)
	}
}

func TestHealth(t *testing.T) {
	var sick error
	s := start(t, func(c *extension.Config) {
		c.Ready = []extension.Check{{Name: "source", Check: func(context.Context) error { return sick }}}
	}, extension.Of(queueDefinition(), twoQueues()))
	s.get("/readyz?verbose").wants(t, http.StatusOK, "[+]ping ok\n", "[+]source ok\n", "readyz check passed\n")
	sick = errors.New("no data")
	s.get("/readyz").wants(t, http.StatusInternalServerError, "[-]source failed: no data\n", "readyz check failed\n")
	s.get("/readyz?exclude=source").wants(t, http.StatusOK, "ok")
	s.get("/readyz/source").wants(t, http.StatusInternalServerError)
	s.get("/readyz/ping").wants(t, http.StatusOK, "ok")
	s.get("/readyz/nothing").wants(t, http.StatusNotFound, `"kind":"Status"`)
	s.get("/livez").wants(t, http.StatusOK, "ok")
}

func TestOverloadIsRejectedImmediately(t *testing.T) {
	q := twoQueues()
	entered, release := make(chan struct{}), make(chan struct{})
	q.hold = func() { entered <- struct{}{}; <-release }
	definition := queueDefinition()
	definition.PollInterval = 0
	s := start(t, func(c *extension.Config) { c.MaxRequestsInFlight = 1 }, extension.Of(definition, q))
	done := make(chan answer, 1)
	go func() { done <- s.get(queuesPath) }()
	<-entered
	a := s.get("/apis")
	a.wants(t, http.StatusTooManyRequests, `"reason":"TooManyRequests"`)
	if a.Header.Get("Retry-After") == "" {
		t.Error("header Retry-After of the 429 response is empty, want a value")
	}
	// The front door's probe must succeed. Otherwise the front door would treat overload as an outage.
	s.get("/apis/stats.example.com/v1", "X-Test-Group: system:masters").wants(t, http.StatusOK)
	s.get("/livez").wants(t, http.StatusOK)
	close(release)
	(<-done).wants(t, http.StatusOK)
}

func TestLargeBodiesAreRejected(t *testing.T) {
	s := start(t, func(c *extension.Config) { c.MaxBodyBytes = 10 }, extension.Of(queueDefinition(), twoQueues()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+queuesPath, bytes.NewReader(make([]byte, 11)))
	must(t, err)
	r.Header.Set("X-Test-User", "alice")
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("POST of a body over the limit = %d, want 413", response.StatusCode)
	}
}

func TestLargeListsAreCompressed(t *testing.T) {
	q := &queues{}
	for i := range 2000 {
		q.items = append(q.items, queue("team", fmt.Sprintf("queue-%04d", i), 1))
	}
	s := start(t, nil, extension.Of(queueDefinition(), q))
	a := s.get(queuesPath) // net/http's transport requests gzip and sets Uncompressed.
	if !a.Uncompressed {
		t.Error("response to a large list is not compressed, want gzip")
	}
	var list struct{ Items []Queue }
	must(t, json.Unmarshal(a.body, &list))
	if len(list.Items) != 2000 || list.Items[1999].Name != "queue-1999" {
		t.Errorf("list has %d items, want 2000 that end with queue-1999", len(list.Items))
	}
}

func TestHTTP1AndHTTP2AreServed(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	if a := s.get(queuesPath); a.ProtoMajor != 2 {
		t.Errorf("protocol of the GET = %s, want HTTP/2", a.Proto)
	}
	config := s.tlsConfig()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), config)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+queuesPath+" HTTP/1.1\r\nHost: localhost\r\nX-Test-User: alice\r\nConnection: close\r\n\r\n")
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 1 {
		t.Errorf("GET over HTTP/1.1 = %s %s, want HTTP/1.1 with status 200", response.Proto, response.Status)
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	good := extension.Of(queueDefinition(), twoQueues())
	for _, c := range []struct {
		situation string
		config    extension.Config
		want      string
	}{
		{"nothing to host", extension.Config{}, "no resources"},
		{"nobody to vouch", extension.Config{Resources: []extension.Resource{good}}, "authenticator"},
		{"no certificate", extension.Config{Resources: []extension.Resource{good}, Authenticator: byHeader{}, Authorizer: byHeader{}}, "certificate"},
	} {
		if _, err := extension.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: New error = %v, want an error that contains %q", c.situation, err, c.want)
		}
	}
}
