package delegated

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/accessreview"
	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/auth/tokenreview"
)

// frontDoor serves the requests that an extension server sends to a front door, over real TLS.
type frontDoor struct {
	*authtest.Server
	t testing.TB

	mu       sync.Mutex
	data     map[string]string // contents of the ConfigMap; nil: it does not exist
	version  int
	changed  chan struct{}
	watching chan struct{} // one value for each watch that begins
	// refuse returns a status code to respond with, 0 to serve the request.
	refuse  func(r *http.Request) int
	tokens  map[string]authenticationv1.TokenReviewStatus
	access  func(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	asked   map[string]int // by path
	bodies  []string
	queries []string
}

func openFrontDoor(t testing.TB, data map[string]string) *frontDoor {
	f := &frontDoor{
		t:        t,
		data:     data,
		version:  1,
		changed:  make(chan struct{}),
		watching: make(chan struct{}, 100),
		refuse:   func(*http.Request) int { return 0 },
		tokens:   map[string]authenticationv1.TokenReviewStatus{},
		access: func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
			return authorizationv1.SubjectAccessReviewStatus{}
		},
		asked: map[string]int{},
	}
	f.Server = authtest.Serve(t, f)
	return f
}

func (f *frontDoor) publish(data map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = data
	f.version++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *frontDoor) configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: configMapName, Namespace: configMapNamespace, ResourceVersion: strconv.Itoa(f.version)},
		Data:       maps.Clone(f.data),
	}
}

func (f *frontDoor) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[path]
}

func (f *frontDoor) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *frontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked[r.URL.Path]++
	f.bodies = append(f.bodies, string(body))
	f.queries = append(f.queries, r.URL.RawQuery)
	code := f.refuse(r)
	f.mu.Unlock()
	if code != 0 {
		writeStatus(w, code)
		return
	}
	switch r.URL.Path {
	case configMaps + "/" + configMapName:
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.data == nil {
			writeStatus(w, http.StatusNotFound)
			return
		}
		writeJSON(w, f.configMap())
	case configMaps:
		f.watch(w, r)
	case tokenreview.Path:
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(body, &review)
		f.mu.Lock()
		review.Status = f.tokens[review.Spec.Token]
		f.mu.Unlock()
		review.Spec.Token = ""
		w.WriteHeader(http.StatusCreated)
		writeJSON(w, review)
	case accessreview.Path:
		var review authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(body, &review)
		review.Status = f.access(review.Spec)
		w.WriteHeader(http.StatusCreated)
		writeJSON(w, review)
	default:
		writeStatus(w, http.StatusNotFound)
	}
}

func (f *frontDoor) watch(w http.ResponseWriter, r *http.Request) {
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	f.watching <- struct{}{}
	for {
		f.mu.Lock()
		changed := f.changed
		if f.version > seen {
			seen = f.version
			object, _ := json.Marshal(f.configMap())
			kind := "MODIFIED"
			if f.data == nil {
				kind = "DELETED"
			}
			writeJSON(w, map[string]any{"type": kind, "object": json.RawMessage(object)})
			w.(http.Flusher).Flush()
		}
		f.mu.Unlock()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func writeJSON(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func writeStatus(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{
		403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 401: metav1.StatusReasonUnauthorized, 500: metav1.StatusReasonInternalError,
	}
	w.WriteHeader(code)
	writeJSON(w, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "the front door says " + strconv.Itoa(code),
	})
}

// authorities are the two CAs of a front door.
type authorities struct{ clients, proxies *authtest.CA }

func newAuthorities(t testing.TB) authorities {
	return authorities{authtest.NewCA(t, "client CA"), authtest.NewCA(t, "front-proxy CA")}
}

func (a authorities) published(names ...string) map[string]string {
	allowed, _ := json.Marshal(append([]string{}, names...))
	return map[string]string{
		clientCAKey:      string(a.clients.PEM()),
		proxyCAKey:       string(a.proxies.PEM()),
		allowedNamesKey:  string(allowed),
		userHeadersKey:   `["X-Remote-User"]`,
		uidHeadersKey:    `["X-Remote-Uid"]`,
		groupHeadersKey:  `["X-Remote-Group"]`,
		extraPrefixesKey: `["X-Remote-Extra-"]`,
	}
}

// running is a Delegated that follows a front door, and a TLS server in front of it that returns the authenticated user.
type running struct {
	*authtest.Server
	d    *Delegated
	logs *observer.ObservedLogs
}

func start(t testing.TB, f *frontDoor, change ...func(*Config)) *running {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	cfg := Config{Client: f.kubeconfig(), Logger: zap.New(core)}
	for _, c := range change {
		c(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want no error", err)
		}
	})
	select {
	case <-d.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run() = %v, want it to run until the test ends", err)
	case <-time.After(time.Minute):
		t.Fatal("the Delegated was not ready within a minute, want it ready")
	}
	return &running{Server: authtest.Serve(t, d.handler()), d: d, logs: logs}
}

func (f *frontDoor) kubeconfig() *rest.Config {
	return &rest.Config{Host: f.URL, BearerToken: "extension", TLSClientConfig: rest.TLSClientConfig{CAData: f.RootPEM}}
}

type answer struct {
	Error  string
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	Header http.Header
}

func (d *Delegated) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := d.AuthenticateRequest(r)
		a := answer{Header: r.Header}
		if err != nil {
			a.Error = err.Error()
			w.WriteHeader(http.StatusUnauthorized)
		} else {
			a.Name, a.UID, a.Groups, a.Extra = u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()
		}
		writeJSON(w, a)
	})
}

func (r *running) knock(t testing.TB, cert *tls.Certificate, headers http.Header) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		request.Header[k] = v
	}
	response, err := r.Client(t, cert).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var a answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a answer) who() string {
	if a.Error != "" {
		return "error: " + a.Error
	}
	return a.Name + ": " + strings.Join(a.Groups, " ")
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not reached within a minute: %s, want it to be true", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
