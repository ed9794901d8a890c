package extension_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	// The parallel tests wait more than they compute. The command line overrides this value.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// Queue is a type as a developer would write it, without generated code.
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Depth  int64       `json:"depth" description:"How many messages wait."`
	Oldest metav1.Time `json:"oldest,omitzero" description:"When the oldest of them came."`
	Owner  *Owner      `json:"owner,omitempty"`
}

// Owner is a nested type.
type Owner struct {
	Team    string  `json:"team"`
	Reports []Owner `json:"reports,omitempty"`
}

// queues is a provider whose content a test may change.
type queues struct {
	mu    sync.Mutex
	items []Queue
	err   error
	lists int
	hold  func() // called during a list
}

func (q *queues) List(context.Context, extension.Query) ([]Queue, error) {
	q.mu.Lock()
	q.lists++
	items, err, hold := slices.Clone(q.items), q.err, q.hold
	q.mu.Unlock()
	if hold != nil {
		hold()
	}
	return items, err
}

func (q *queues) set(items ...Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = items
}

func (q *queues) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
}

func (q *queues) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lists
}

func queue(namespace, name string, depth int64, labels ...string) Queue {
	q := Queue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Depth: depth}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		q.Labels[k] = v
	}
	return q
}

func queueDefinition() extension.Definition[Queue] {
	return extension.Definition[Queue]{
		Group: "stats.example.com", Version: "v1", Plural: "queues", Kind: "Queue", Singular: "queue",
		ShortNames: []string{"q"}, Categories: []string{"all"}, Namespaced: true,
		PollInterval: 20 * time.Millisecond,
		Columns: []extension.Column[Queue]{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the queue.", Value: func(q *Queue) any { return q.Name }},
			{Name: "Depth", Type: "integer", Description: "Messages that wait.", Value: func(q *Queue) any { return q.Depth }},
		},
		Fields: map[string]func(*Queue) string{"owner.team": func(q *Queue) string {
			if q.Owner == nil {
				return ""
			}
			return q.Owner.Team
		}},
		Docs: map[string]string{"": "Queue is a line of messages.", "owner.team": "The team that answers for it."},
	}
}

// byHeader authenticates by a header that only tests send. It denies access as configured by the test.
type byHeader struct {
	deny func(u user.Info, info *apirequest.RequestInfo) bool
	fail error
}

func (byHeader) AuthenticateRequest(r *http.Request) (user.Info, error) {
	name := r.Header.Get("X-Test-User")
	if name == "" {
		return nil, errors.New("no credentials")
	}
	return &user.DefaultInfo{Name: name, Groups: r.Header.Values("X-Test-Group")}, nil
}

func (a byHeader) Authorize(_ context.Context, u user.Info, info *apirequest.RequestInfo) (bool, string, error) {
	if a.fail != nil {
		return false, "", a.fail
	}
	return a.deny == nil || !a.deny(u, info), "", nil
}

// server is a host on a TLS listener, with a client for it.
type server struct {
	t      *testing.T
	host   *extension.Host
	client *http.Client
	url    string
	stop   func() error // stops the host and waits for its end
}

func start(t *testing.T, change func(*extension.Config), resources ...extension.Resource) *server {
	t.Helper()
	authority, err := pki.NewAuthority("test-ca")
	must(t, err)
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "host", DNSNames: []string{"localhost"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	must(t, err)
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	must(t, err)
	c := extension.Config{Resources: resources, Authenticator: byHeader{}, Authorizer: byHeader{},
		BindAddress: "127.0.0.1", GetCertificate: pair.GetCertificate, ShutdownTimeout: 5 * time.Second}
	if change != nil {
		change(&c)
	}
	host, err := extension.New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx) }()
	select {
	case <-host.Ready():
	case err := <-done:
		cancel()
		t.Fatalf("host stopped before it was ready: %v, want a ready host", err)
	}
	tlsConfig, err := pki.ClientConfig(pki.ClientOptions{ServerName: "localhost", Roots: authority.PEM()})
	must(t, err)
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	stop := sync.OnceValue(func() error {
		transport.CloseIdleConnections() // A drain waits for open connections.
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run of the host failed: %v, want no error", err)
		}
	})
	return &server{t: t, host: host, client: &http.Client{Transport: transport}, url: "https://" + host.Address(), stop: stop}
}

func (s *server) tlsConfig() *tls.Config {
	return s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
}

type answer struct {
	*http.Response
	body []byte
}

// get sends a GET as alice; headers are "Name: value".
func (s *server) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, headers...)
}

func (s *server) do(method, path string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	must(s.t, err)
	r.Header.Set("X-Test-User", "alice")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "X-Test-User" && value == "" {
			r.Header.Del(name)
			continue
		}
		r.Header.Add(name, value)
	}
	response, err := s.client.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answer{response, body}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (a answer) wants(t *testing.T, code int, substrings ...string) {
	t.Helper()
	if a.StatusCode != code {
		t.Fatalf("response status = %d, want %d; body: %s", a.StatusCode, code, a.body)
	}
	for _, want := range substrings {
		if !strings.Contains(string(a.body), want) {
			t.Errorf("response body = %s, want it to contain %q", a.body, want)
		}
	}
}

// golden compares got with testdata/<name>.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(want, got) {
		t.Errorf("%s differs (run with -update to rewrite)\nwant:\n%s\ngot:\n%s", file, want, got)
	}
}

// patience is the timeout of every wait.
const patience = time.Minute

// eventually polls until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("condition %q is false after %s, want true", what, patience)
		case <-tick.C:
		}
	}
}
