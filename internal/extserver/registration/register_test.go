package registration

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients/apiclient"
)

func TestMain(m *testing.M) {
	// The parallel tests wait more than they compute. The command line overrides this value.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func registration() Registration {
	return Registration{Namespace: "kube-system", Service: "metrics", ExternalName: "localhost", Port: 4443, CABundle: []byte("PEM"),
		GroupVersions: []schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1"}, {Group: "metrics.k8s.io", Version: "v1beta1"}}}
}

func TestManifests(t *testing.T) {
	byAddress := registration()
	byAddress.Addresses = []string{"192.0.2.7"}
	readable := registration()
	readable.Readable = []Resources{{Group: "metrics.k8s.io", Names: []string{"nodes"}}}
	readable.Needs = []Rule{{Groups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	creating := byAddress
	creating.MayCreate = true
	selecting := registration()
	selecting.Selector = map[string]string{"app": "metrics"}
	for file, objects := range map[string][]Manifest{
		"external-name.yaml":  registration().Objects(),
		"endpoint-slice.yaml": byAddress.Objects(),
		"rbac.yaml":           readable.RBAC(),
		"rbac-creating.yaml":  creating.RBAC(),
		"selector.yaml":       selecting.Objects(),
	} {
		got, err := YAML(objects)
		must(t, err)
		want, err := os.ReadFile(filepath.Join("testdata", file))
		if os.Getenv("UPDATE_GOLDEN") != "" {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(filepath.Join("testdata", file), got, 0o644))
			continue
		}
		must(t, err)
		if string(got) != string(want) {
			t.Errorf("%s =\n%s\nwant\n%s", file, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	must(t, registration().Validate())
	for _, c := range []struct {
		situation string
		change    func(*Registration)
	}{
		{"no namespace", func(r *Registration) { r.Namespace = "" }},
		{"port zero", func(r *Registration) { r.Port = 0 }},
		{"nothing served", func(r *Registration) { r.GroupVersions = nil }},
		{"name as address", func(r *Registration) { r.Addresses = []string{"localhost"} }},
		{"loopback address", func(r *Registration) { r.Addresses = []string{"::1"} }},
		{"addresses and a selector", func(r *Registration) {
			r.Addresses, r.Selector = []string{"192.0.2.7"}, map[string]string{"app": "metrics"}
		}},
	} {
		r := registration()
		c.change(&r)
		if r.Validate() == nil {
			t.Errorf("Validate of %s: error = nil, want an error", c.situation)
		}
	}
}

func TestRegistrationRetriesUntilFrontDoorIsReady(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var mu sync.Mutex
	var seen []string
	answers := []int{503, 500, 200}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type"))
		code := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"kind":"Status","message":"not yet"}`)
	}))
	defer server.Close()
	k, err := NewRegistrar(RegistrarConfig{Client: &rest.Config{Host: server.URL + "/prefix"}, Registration: registration})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	<-k.Ready()
	cancel()
	must(t, <-done)
	last := strings.Join(seen[len(seen)-6:], "\n")
	want := `GET /prefix/api/v1/namespaces/kube-system/services/metrics 
PATCH /prefix/api/v1/namespaces/kube-system/services/metrics?fieldManager=extserver&force=true application/apply-patch+yaml
GET /prefix/apis/apiregistration.k8s.io/v1/apiservices/v1.metrics.k8s.io 
PATCH /prefix/apis/apiregistration.k8s.io/v1/apiservices/v1.metrics.k8s.io?fieldManager=extserver&force=true application/apply-patch+yaml
GET /prefix/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io 
PATCH /prefix/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io?fieldManager=extserver&force=true application/apply-patch+yaml`
	if last != want {
		t.Errorf("requests =\n%s\nwant\n%s", last, want)
	}
}

func TestForbiddenRegistrationNamesTheManifests(t *testing.T) {
	for _, code := range []int{400, 401, 403, 404, 422, 302} {
		synctest.Test(t, func(t *testing.T) {
			refuses := once(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: code, Request: r, Header: http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}},
					Body: io.NopCloser(strings.NewReader(`{"kind":"Status","message":"no rights here"}`)),
				}, nil
			})
			k, err := NewRegistrar(RegistrarConfig{Client: &rest.Config{Host: "https://front-door", Transport: refuses}, Registration: registration})
			must(t, err)
			err = k.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "no rights here") || !strings.Contains(err.Error(), "extserver manifests") {
				t.Errorf("Run with status %d: error = %v, want the message of the front door and \"extserver manifests\"", code, err)
			}
		})
	}
}

// once answers from memory, so that tests can use synthetic time.
type once func(*http.Request) (*http.Response, error)

func (o once) RoundTrip(r *http.Request) (*http.Response, error) { return o(r) }

func (o once) client(t *testing.T) *apiclient.Client {
	t.Helper()
	c, err := apiclient.New(&rest.Config{Host: "https://front-door", Transport: o})
	must(t, err)
	return c
}

func TestRegistrationIsReappliedPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		var broken atomic.Bool
		k := &Registrar{config: RegistrarConfig{Registration: registration, Logger: zap.NewNop()}, ready: make(chan struct{}), trigger: make(chan struct{}, 1),
			client: once(func(*http.Request) (*http.Response, error) {
				if broken.Load() {
					return nil, errors.New("connection refused")
				}
				writes.Add(1)
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			}).client(t)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		<-k.Ready()
		time.Sleep(checkInterval * 2)
		synctest.Wait()
		if n := writes.Load(); n < 6 {
			t.Errorf("%d writes after two check intervals, want at least 6", n)
		}
		broken.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		broken.Store(false)
		before := writes.Load()
		time.Sleep(2 * longestBackoff)
		synctest.Wait()
		if writes.Load() == before {
			t.Error("no write after the front door recovered, want the registration written again")
		}
		cancel()
		must(t, <-done)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
