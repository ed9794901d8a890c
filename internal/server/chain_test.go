package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	auditlog "portico.dev/internal/audit"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

func TestMain(m *testing.M) {
	if os.Getenv(fdChild) != "" {
		serveWithFewDescriptors()
		return
	}
	if kind := os.Getenv(benchRole); kind != "" {
		if err := serveBench(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m,
		// A read that waits for a version leaves a timer behind, for three seconds.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// lumberjack never ends the goroutine that removes old files (natefinch/lumberjack#56).
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// byHeader authenticates the user in the header Test-User. An empty name counts as a missing credential, "bad" as a failed one.
type byHeader struct{}

func (byHeader) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	switch name := r.Header.Get("Test-User"); name {
	case "":
		return nil, false, nil
	case "bad":
		return nil, false, errors.New("token of nobody")
	default:
		groups := r.Header.Values("Test-Group")
		return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups}}, true, nil
	}
}

// rules allows the listed requests, written as "user verb resource name".
type rules []string

func (s rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	question := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetName()))
	if !a.IsResourceRequest() {
		question = fmt.Sprintf("%s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetPath())
	}
	if slices.Contains(s, question) || slices.Contains(s, a.GetUser().GetName()+" *") {
		return authorizer.DecisionAllow, "a rule of the test", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

type events []*auditinternal.Event

// Level implements Auditor.
func (b *bench) Level(a authorizer.Attributes) audit.RequestAuditConfig {
	if b.policy != nil {
		return b.policy(a)
	}
	return audit.RequestAuditConfig{
		Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
	}
}

// Process implements Auditor.
func (b *bench) Process(e *auditinternal.Event, more []auditlog.Annotation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e = e.DeepCopy()
	for _, a := range more {
		if a.Value != "" {
			if e.Annotations == nil {
				e.Annotations = map[string]string{}
			}
			e.Annotations[a.Key] = a.Value
		}
	}
	b.events = append(b.events, e)
}

type bench struct {
	config  ChainConfig
	handler http.HandlerFunc
	policy  func(authorizer.Attributes) audit.RequestAuditConfig // nil: Metadata when a request ends
	objects kubernetes.Interface                                 // client for the local groups; set by useFairness
	memory  bool                                                 // connections of listen are in memory

	mu      sync.Mutex // guards the fields below
	events  events
	reached []*http.Request
}

func newBench(allowed ...string) *bench {
	b := &bench{}
	b.config = ChainConfig{
		Authenticator: byHeader{},
		Authorizer:    rules(allowed),
		Ready:         func() error { return nil },
		Audit:         b,
		Metrics:       metrics.NewRequests(prometheus.NewRegistry()),
		Logger:        zap.NewNop(),
		AccessLog:     zap.NewNop(),
		Drainer:       NewDrainer(),
	}
	b.handler = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "served") }
	return b
}

func (b *bench) chain(t testing.TB) http.Handler {
	t.Helper()
	h, err := NewChain(b.config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.reached = append(b.reached, r)
		b.mu.Unlock()
		b.handler(w, r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// do sends one request; headers are "Name: value".
func (b *bench) do(t *testing.T, method, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	b.chain(t).ServeHTTP(w, r)
	return w
}

func statusOf(t *testing.T, w *httptest.ResponseRecorder) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Kind != "Status" {
		t.Fatalf("response = %d %s (decoding error %v), want a Status", w.Code, w.Body, err)
	}
	return s
}

func TestChainHasFiltersInDocumentedOrder(t *testing.T) {
	all, err := chainFilters(newBench().config)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	want := "recover cluster canonicalPath requestInfo auditInit accessLog ready drain deadline goaway hsts cors authentication tracing audit userAgent overload headerMemory impersonation flowControl authorization"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("filters of the chain = %s, want %s", got, want)
	}
}

func TestAuthenticateAndAuthorize(t *testing.T) {
	const configmaps = "/api/v1/namespaces/default/configmaps"
	for name, c := range map[string]struct {
		headers []string
		target  string
		code    int
		message string
	}{
		"allowed":             {[]string{"Test-User: alice"}, configmaps, 200, ""},
		"no credential":       {nil, configmaps, 401, "Unauthorized"},
		"a failed credential": {[]string{"Test-User: bad"}, configmaps, 401, "Unauthorized"},
		"not allowed": {[]string{"Test-User: bob"}, configmaps, 403,
			`configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		"not allowed, one object of a group": {[]string{"Test-User: bob"}, "/apis/g.example.com/v1/foos/x/status", 403,
			`foos.g.example.com "x" is forbidden: User "bob" cannot get resource "foos/status" in API group "g.example.com" at the cluster scope`},
		"not allowed, no resource": {[]string{"Test-User: bob"}, "/metrics", 403, `forbidden: User "bob" cannot get path "/metrics"`},
		"A16 traversal":            {[]string{"Test-User: alice"}, "/api/v1/namespaces/default/..%2Fx", 400, "escaped"},
		"A21 semicolon":            {[]string{"Test-User: alice"}, configmaps + "?a=1;b=2", 400, "semicolon"},
		"a timeout that is none":   {[]string{"Test-User: alice"}, configmaps + "?timeout=soon", 400, "not a duration"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice list configmaps")
			w := b.do(t, http.MethodGet, c.target, c.headers...)
			if w.Code != c.code {
				t.Fatalf("GET %s = %d %s, want %d", c.target, w.Code, w.Body, c.code)
			}
			if c.code == 200 {
				if len(b.reached) != 1 || w.Header().Get("Audit-Id") == "" {
					t.Errorf("calls of the handler for GET %s = %d with the response header %v, want 1 and an Audit-Id", c.target, len(b.reached), w.Header())
				}
				return
			}
			if len(b.reached) != 0 {
				t.Errorf("calls of the handler for the rejected GET %s = %d, want 0", c.target, len(b.reached))
			}
			if s := statusOf(t, w); !strings.Contains(s.Message, c.message) || int(s.Code) != c.code {
				t.Errorf("status of GET %s = %+v, want code %d and a message that contains %q", c.target, s, c.code, c.message)
			}
		})
	}
}

func TestTraceConnectAndAbsoluteFormAreRejected(t *testing.T) {
	b := newBench("alice *")
	for _, method := range []string{http.MethodTrace, http.MethodConnect} {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		r.Method = method
		w := httptest.NewRecorder()
		b.chain(t).ServeHTTP(w, r)
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("A18: status of %s /api = %d, want 405", method, w.Code)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	r.RequestURI = "http://169.254.169.254/api"
	w := httptest.NewRecorder()
	b.chain(t).ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || len(b.reached) != 0 {
		t.Errorf("A18: status of a target in absolute form = %d with %d calls of the handler, want 400 and 0", w.Code, len(b.reached))
	}
}

func TestImpersonation(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		headers []string
		code    int
		as      string
		groups  []string
	}{
		"nobody else": {[]string{"alice list pods"}, nil, 200, "alice", nil},
		"A10 a user": {
			[]string{"alice impersonate users bob", "bob list pods"},
			[]string{"Impersonate-User: bob"}, 200, "bob", []string{user.AllAuthenticated},
		},
		"A10 a user and a group, both allowed": {
			[]string{"alice impersonate users bob", "alice impersonate groups dev", "bob list pods"},
			[]string{"Impersonate-User: bob", "Impersonate-Group: dev"}, 200, "bob", []string{"dev", user.AllAuthenticated},
		},
		"A10 a group that is not allowed": {
			[]string{"alice impersonate users bob", "bob list pods"},
			[]string{"Impersonate-User: bob", "Impersonate-Group: system:masters"}, 403, "", nil,
		},
		"A10 extra that is not allowed": {
			[]string{"alice impersonate users bob", "bob list pods"},
			[]string{"Impersonate-User: bob", "Impersonate-Extra-Scope: all"}, 403, "", nil,
		},
		"A10 a uid that is not allowed": {
			[]string{"alice impersonate users bob", "bob list pods"},
			[]string{"Impersonate-User: bob", "Impersonate-Uid: 1"}, 403, "", nil,
		},
		"A10 groups without a user": {
			[]string{"alice list pods"}, []string{"Impersonate-Group: dev"}, 400, "", nil,
		},
		"A10 extra without a user": {
			[]string{"alice list pods"}, []string{"Impersonate-Extra-Scope: x"}, 400, "", nil,
		},
		"a service account has its groups": {
			[]string{"alice impersonate serviceaccounts sa", "system:serviceaccount:ns:sa list pods"},
			[]string{"Impersonate-User: system:serviceaccount:ns:sa"}, 200, "system:serviceaccount:ns:sa",
			[]string{"system:serviceaccounts", "system:serviceaccounts:ns", user.AllAuthenticated},
		},
		"the impersonated user's rights count": {
			[]string{"alice impersonate users bob", "alice list pods"},
			[]string{"Impersonate-User: bob"}, 403, "", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.allowed...)
			w := b.do(t, http.MethodGet, "/api/v1/pods", append(c.headers, "Test-User: alice")...)
			if w.Code != c.code {
				t.Fatalf("GET /api/v1/pods with the fields %q = %d %s, want %d", c.headers, w.Code, w.Body, c.code)
			}
			if c.code != 200 {
				return
			}
			r := b.reached[0]
			u, _ := apirequest.UserFrom(r.Context())
			if u.GetName() != c.as || !slices.Equal(u.GetGroups(), c.groups) {
				t.Errorf("user of the request at the handler = %s %v, want %s %v", u.GetName(), u.GetGroups(), c.as, c.groups)
			}
			for h := range r.Header {
				if strings.HasPrefix(h, "Impersonate-") {
					t.Errorf("header of the request at the handler contains %s, want no Impersonate field", h)
				}
			}
			if e := b.events[0]; c.as != "alice" && (e.User.Username != "alice" || e.ImpersonatedUser.Username != c.as) {
				t.Errorf("user in the audit event = %s, impersonated %+v, want alice, impersonated %s", e.User.Username, e.ImpersonatedUser, c.as)
			}
		})
	}
}

func TestAuditEventsNameTheDecision(t *testing.T) {
	b := newBench("alice list pods")
	b.do(t, http.MethodGet, "/api/v1/pods?labelSelector=a%3Db&token=canary", "Test-User: alice", "Audit-Id: mine", "Authorization: Bearer canary")
	b.do(t, http.MethodDelete, "/api/v1/namespaces/a/pods/b", "Test-User: alice")
	if len(b.events) != 2 {
		t.Fatalf("%d audit events after two requests, want 2", len(b.events))
	}
	first, second := b.events[0], b.events[1]
	if first.AuditID != "mine" || first.Annotations["authorization.k8s.io/decision"] != "allow" || first.ResponseStatus.Code != 200 {
		t.Errorf("audit event of the allowed list = %+v, want ID mine, decision allow and code 200", first)
	}
	if second.Annotations["authorization.k8s.io/decision"] != "forbid" || second.ObjectRef.Name != "b" || second.ResponseStatus.Code != 403 {
		t.Errorf("audit event of the rejected delete = %+v, want object b, decision forbid and code 403", second)
	}
	if first.RequestURI != "/api/v1/pods?labelSelector=a%3Db&token=..." {
		t.Errorf("request URI in the audit event = %s, want the token replaced by ...", first.RequestURI)
	}
	line, err := json.Marshal(b.events)
	if err != nil || strings.Contains(string(line), "canary") {
		t.Errorf("E1: audit events = %s (encoding error %v), want no credential", line, err)
	}
}

func TestPanicReturns500OrAbortsStartedResponse(t *testing.T) {
	b := newBench("alice *")
	b.handler = func(http.ResponseWriter, *http.Request) { panic("secret detail") }
	w := b.do(t, http.MethodGet, "/api", "Test-User: alice")
	if s := statusOf(t, w); w.Code != 500 || strings.Contains(s.Message, "secret") {
		t.Errorf("response after a panic = %d %+v, want 500 without the panic's text", w.Code, s)
	}
	b.handler = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("now")
	}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("panic after half a response = %v, want http.ErrAbortHandler", p)
		}
	}()
	b.do(t, http.MethodGet, "/api", "Test-User: alice")
	t.Error("the request returned normally after half a response, want a panic with http.ErrAbortHandler")
}

func TestNotReadyReturns503WithRetryAfter(t *testing.T) {
	b := newBench("alice *")
	b.config.Ready = func() error { return errors.New("no routes") }
	w := b.do(t, http.MethodGet, "/apis/g/v1/foos", "Test-User: alice")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("response while not ready = %d with the header %v, want 503 with Retry-After 1", w.Code, w.Header())
	}
	if w = b.do(t, http.MethodGet, "/livez", "Test-User: alice"); w.Code != http.StatusOK {
		t.Errorf("GET /livez while not ready = %d, want 200", w.Code)
	}
}

func TestTooManyRequests(t *testing.T) {
	b := newBench("alice *", "admin *")
	b.config.MaxInFlight = 1
	entered, leave := make(chan struct{}), make(chan struct{})
	b.handler = func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}
	chain := b.chain(t)
	send := func(target string, headers ...string) <-chan int {
		done := make(chan int, 1)
		r := httptest.NewRequest(http.MethodGet, target, nil)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value)
		}
		go func() {
			w := httptest.NewRecorder()
			chain.ServeHTTP(w, r)
			done <- w.Code
		}()
		return done
	}
	first := send("/api/v1/pods", "Test-User: alice")
	<-entered
	if code := <-send("/api/v1/pods", "Test-User: alice"); code != http.StatusTooManyRequests {
		t.Errorf("status of a second read at a limit of 1 = %d, want 429", code)
	}
	var let []<-chan int
	for what, headers := range map[string][]string{
		"/api/v1/pods":         {"Test-User: admin", "Test-Group: system:masters"},
		"/api/v1/pods?watch=1": {"Test-User: alice"},
	} {
		let = append(let, send(what, headers...))
		<-entered
	}
	close(leave)
	for _, done := range append(let, first) {
		if code := <-done; code != http.StatusOK {
			t.Errorf("status of an admitted request = %d, want 200", code)
		}
	}
}

func TestDeadlineExemptsLongRunningRequests(t *testing.T) {
	b := newBench("alice *")
	b.config.RequestTimeout = time.Hour
	for target, want := range map[string]time.Duration{
		"/api/v1/pods":                time.Hour,
		"/api/v1/pods?timeout=5s":     5 * time.Second,
		"/api/v1/pods?timeout=9h":     time.Hour,
		"/api/v1/pods?watch=1":        0,
		"/api/v1/namespaces/a/pods/b": time.Hour,
	} {
		var left time.Duration
		b.handler = func(_ http.ResponseWriter, r *http.Request) {
			if deadline, ok := r.Context().Deadline(); ok {
				left = time.Until(deadline)
			}
		}
		b.do(t, http.MethodGet, target, "Test-User: alice")
		if left > want || left < want-time.Minute {
			t.Errorf("time until the deadline of GET %s = %v, want %v", target, left, want)
		}
	}
}

func TestCORS(t *testing.T) {
	b := newBench("alice *")
	b.config.CORSAllowedOrigins = []string{`^https://ui\.example\.com$`}
	if w := b.do(t, http.MethodGet, "/api", "Test-User: alice", "Origin: https://ui.example.com"); w.Header().Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("response to an allowed origin = header %v, want Access-Control-Allow-Origin", w.Header())
	}
	if w := b.do(t, http.MethodGet, "/api", "Test-User: alice", "Origin: https://evil.example.com"); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("response to another origin = header %v, want no Access-Control-Allow-Origin", w.Header())
	}
	if w := b.do(t, http.MethodOptions, "/api", "Origin: https://ui.example.com"); w.Code != http.StatusNoContent {
		t.Errorf("status of a preflight request = %d, want 204", w.Code)
	}
	b.config.CORSAllowedOrigins = []string{"("}
	if _, err := NewChain(b.config, http.NotFoundHandler()); err == nil {
		t.Error("NewChain accepted an origin that is not a regular expression, want an error")
	}
}

func TestDrainEndsWatchesAndCompletesOtherRequests(t *testing.T) {
	b := newBench("alice *")
	entered, finish := make(chan struct{}), make(chan struct{})
	b.handler = func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		info, _ := apirequest.RequestInfoFrom(r.Context())
		if request.LongRunning(info) {
			<-r.Context().Done()
			return
		}
		<-finish
	}
	chain := b.chain(t)
	codes := make(chan int, 2)
	for _, target := range []string{"/api/v1/pods?watch=1", "/api/v1/pods"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Test-User", "alice")
		go func() {
			w := httptest.NewRecorder()
			chain.ServeHTTP(w, r)
			codes <- w.Code
		}()
		<-entered
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.config.Drainer.Drain(short); err == nil {
		t.Error("Drain returned without an error while a request ran, want an error")
	}
	<-codes // the watch
	if w := b.do(t, http.MethodGet, "/api", "Test-User: alice"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status of a new request during the drain = %d, want 503", w.Code)
	}
	close(finish)
	<-codes
	if err := b.config.Drainer.Drain(t.Context()); err != nil {
		t.Errorf("Drain after the last request failed: %v, want no error", err)
	}
}

func TestUnknownResourcesAndVerbsAddFewSeries(t *testing.T) {
	b := newBench("alice *")
	reg := prometheus.NewRegistry()
	b.config.Metrics = metrics.NewRequests(reg)
	b.handler = func(w http.ResponseWriter, r *http.Request) { respond.Error(w, r, respond.NotFound(r)) }
	chain := b.chain(t)
	for i := range 200 {
		r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/apis/g%d/v%d/r%d", i, i, i), nil)
		r.Method = fmt.Sprintf("VERB%d", i)
		r.Header.Set("Test-User", "alice")
		chain.ServeHTTP(httptest.NewRecorder(), r)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	if series > 12 {
		t.Errorf("C9: %d series after 200 made-up resources and verbs, want at most 12", series)
	}
}

// The response writer must implement the interfaces that k8s.io/apiserver requires for the local groups.
func TestResponseWriterSupportsFlushAndHijack(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(recoverFilter(zap.NewNop(), metrics.NewRequests(prometheus.NewRegistry()), newSlowClients(0, slowBudget))(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, flush := w.(http.Flusher)
				_, hijack := w.(http.Hijacker)
				_, notify := w.(interface{ CloseNotify() <-chan bool })
				fmt.Fprintf(w, "%d flush=%v hijack=%v notify=%v", r.ProtoMajor, flush, hijack, notify)
			})))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		res, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		res.Body.Close()
		srv.Client().CloseIdleConnections()
		srv.Close()
		want := "1 flush=true hijack=true notify=true"
		if h2 {
			want = "2 flush=true hijack=false notify=true"
		}
		if err != nil || string(body) != want {
			t.Errorf("interfaces of the response writer, HTTP/2 %t = %q (error %v), want %q", h2, body, err, want)
		}
	}
}

func TestDeniedUserAgentIsRejected(t *testing.T) {
	const configmaps = "/api/v1/namespaces/default/configmaps"
	for name, c := range map[string]struct {
		agent, target string
		code          int
	}{
		"denied":                        {"broken-controller/v1.2", configmaps, 403},
		"denied by the second":          {"curl/8", configmaps, 403},
		"denied, and not authenticated": {"curl/8", configmaps, 401},
		"another":                       {"kubectl/v1.37.1", configmaps, 200},
		"in the middle":                 {"not-broken-controller/v1", configmaps, 200},
		"none":                          {"", configmaps, 200},
		"beyond the first KiB":          {strings.Repeat("x", 1020) + " bad-bad-bad", configmaps, 200},
		"a health check":                {"curl/8", "/livez", 200},
		"another path":                  {"curl/8", "/metrics", 403},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice *")
			b.config.DeniedUserAgents = []string{"^broken-controller/", "^curl/", "bad-bad"}
			headers := []string{"Test-User: alice", "User-Agent: " + c.agent}
			if c.code == 401 {
				headers[0] = "Test-User: bad"
			}
			w := b.do(t, http.MethodGet, c.target, headers...)
			if w.Code != c.code || (len(b.reached) == 1) != (c.code == 200) || len(b.events) != 1 {
				t.Fatalf("GET %s by %.40q = %d %s with %d calls of the handler and %d events, want %d, a call only for 200, and 1 event", c.target, c.agent, w.Code, w.Body, len(b.reached), len(b.events), c.code)
			}
			if c.code == 403 {
				if s := statusOf(t, w); s.Reason != metav1.StatusReasonForbidden || !strings.Contains(s.Message, "--deny-user-agents") {
					t.Errorf("status for a denied user agent = %+v, want the reason Forbidden and a message that names --deny-user-agents", s)
				}
				if e := b.events[0]; e.ResponseStatus.Code != 403 || e.User.Username != "alice" {
					t.Errorf("audit event of a denied user agent = %+v, want code 403 and user alice", e)
				}
			}
		})
	}
}

func TestInvalidUserAgentPatternsAreRejected(t *testing.T) {
	for want, patterns := range map[string][]string{
		"no regular expression": {"("}, "aaa": {strings.Repeat("a", 1025)}, "must have 1": {""}, "join some": make([]string, 65),
	} {
		if _, err := CompileUserAgents(patterns); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CompileUserAgents(%d patterns) error = %v, want an error that contains %q", len(patterns), err, want)
		}
	}
}
