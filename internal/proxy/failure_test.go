package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|:\d{4,5}|localhost`)

// The response that the client of a broken backend receives and its delay, and that other backends are not affected.
func TestBackendFailureReturnsStatusAndCause(t *testing.T) {
	silent := func(c *tls.Conn) { _, _ = io.Copy(io.Discard, c) }
	h1 := func(text string) func(*testEnv) string {
		return func(w *testEnv) string {
			return w.raw("http/1.1", func(c *tls.Conn) {
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, text)
				}
			})
		}
	}
	serving := func(l pki.Leaf) func(*testEnv) string {
		return func(w *testEnv) string {
			listener, address := w.listen()
			w.t.Cleanup(serveTLSOn(listener, pki.ServerConfig(w.pair(l)), nil))
			return address
		}
	}
	tests := []struct {
		name    string
		backend func(*testEnv) string
		code    int
		reason  metav1.StatusReason
		cause   metav1.CauseType
		retry   bool
	}{
		{"no endpoints", func(*testEnv) string { return "" }, 503, "ServiceUnavailable", "NoEndpoints", true},
		{"refuses connections", (*testEnv).deadAddress, 503, "ServiceUnavailable", "ConnectionRefused", true},
		{"TLS and then silence", func(w *testEnv) string { return w.raw("h2", silent) }, 503, "ServiceUnavailable", "TLSFailed", true},
		{"wrong name", serving(pki.Leaf{DNSNames: []string{"other.svc"}, Server: true}), 503, "ServiceUnavailable", "CertificateName", false},
		{"a client's certificate", serving(pki.Leaf{DNSNames: []string{serviceName}, Client: true}), 503, "ServiceUnavailable", "TLSFailed", true},
		{"expired certificate", expired, 503, "ServiceUnavailable", "CertificateExpired", false},
		{"another authority", func(w *testEnv) string {
			other, err := pki.NewAuthority("other")
			if err != nil {
				w.t.Fatal(err)
			}
			mine := w.ca
			w.ca = other
			defer func() { w.ca = mine }()
			return serving(pki.Leaf{DNSNames: []string{serviceName}, Server: true})(w)
		}, 503, "ServiceUnavailable", "CertificateUntrusted", false},
		{"takes the request and never answers", func(w *testEnv) string {
			return w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		}, 504, "Timeout", "Timeout", false},
		{"one byte of a header at a time", func(w *testEnv) string {
			return w.raw("http/1.1", func(c *tls.Conn) {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for _, b := range []byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1000)) {
					<-tick.C
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
				}
			})
		}, 504, "Timeout", "Timeout", false},
		{"connection lost after the request", h1(""), 503, "ServiceUnavailable", "ConnectionLost", false},
		{"not HTTP", h1("SSH-2.0-OpenSSH_9\r\n\r\n"), 502, "BackendProtocol", "BackendProtocol", false},
		{"endless headers", h1("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), 502, "BackendProtocol", "BackendProtocol", false},
		{"switches protocols unasked", h1("HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\n"), 502, "BackendProtocol", "BackendProtocol", false},
		{"endless interim answers", h1(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 20000)), 502, "BackendProtocol", "BackendProtocol", false},
		{"status 999", h1("HTTP/1.1 999 Huh\r\nContent-Length: 0\r\n\r\n"), 502, "BackendProtocol", "BackendProtocol", false},
	}
	for _, test := range tests {
		check := func(t *testing.T, env func(*testing.T, Config, transport.Options) *testEnv) {
			registry := prometheus.NewRegistry()
			requests := metrics.NewRequests(registry)
			options, deadline := transport.Options{}, time.Minute // a busy machine is not a broken backend
			if strings.HasSuffix(test.name, "silence") {
				options.TLSTimeout = 2 * time.Second
			}
			if test.cause == "Timeout" {
				deadline = 2 * time.Second
			}
			w := env(t, Config{Requests: requests}, options)
			w.deadline = deadline
			var addresses []string
			if at := test.backend(w); at != "" {
				addresses = []string{at}
			}
			w.backend(addresses...)
			start := time.Now()
			a := w.do(w.client(), w.request(http.MethodPut, resource, strings.NewReader("{}")))
			if took := time.Since(start); took > time.Minute {
				t.Errorf("the response took %s, want at most a minute", took)
			}
			s := a.status(t)
			if a.StatusCode != test.code || s.Reason != test.reason {
				t.Fatalf("response = %s: %s, want %d with reason %s", a.Status, a.body, test.code, test.reason)
			}
			if d := s.Details; d == nil || d.Kind != "APIService" || d.Name != apiService || len(d.Causes) != 2 || d.Causes[0].Type != test.cause ||
				d.Causes[1] != (metav1.StatusCause{Type: respond.CauseAuditID, Message: "audit-1"}) {
				t.Errorf("details = %+v, want APIService %s with the causes %s and audit-1", s.Details, apiService, test.cause)
			}
			if retry := a.Header.Get("Retry-After") != ""; retry != test.retry {
				t.Errorf("Retry-After = %q, want it set %t", a.Header.Get("Retry-After"), test.retry)
			}
			if leak := address.FindString(a.body); leak != "" || !strings.Contains(s.Message, apiService) {
				t.Errorf("message = %q, want %s and no address", s.Message, apiService)
			}
			if limit := regexp.MustCompile(`it did not answer within [\d.]+m?s, the time limit of the request`); test.cause == "Timeout" && !limit.MatchString(s.Message) {
				t.Errorf("message = %q, want a match of %s", s.Message, limit)
			}
			logged := w.logs.FilterMessage("request not served").All()
			if len(logged) != 1 || logged[0].ContextMap()["audit-id"] != "audit-1" || logged[0].ContextMap()["apiservice"] != apiService {
				t.Errorf("log entries = %v, want one with audit-id audit-1 and apiservice %s", logged, apiService)
			}
			if n := testutil.ToFloat64(requests.Terminations.WithLabelValues("update", "metrics.example.com", "v1", "nodes", "", "resource",
				"aggregator", fmt.Sprint(test.code))); n != 1 {
				t.Errorf("terminations of code %d = %v, want 1", test.code, n)
			}
			// Another backend of the same server is not affected.
			w.register(transport.Spec{Name: "ns/other:443", ServerName: serviceName, CABundle: w.ca.PEM()}, w.serve(&recorder{}))
			if a := w.get(resource); a.StatusCode != 200 {
				t.Errorf("GET of another backend = %s, want 200", a.Status)
			}
		}
		t.Run(test.name, func(t *testing.T) {
			if test.cause == "ConnectionRefused" {
				check(t, newTestEnv)
				return
			}
			synctest.Test(t, func(t *testing.T) { check(t, newMemoryEnv) })
		})
	}
}

func TestUnresponsiveBackendErrorNamesCondition(t *testing.T) {
	for condition, want := range map[string]string{"": "the condition Available of", "BackendAvailable": "the condition BackendAvailable of"} {
		x := &exchange{proxy: New(Config{Condition: condition}), request: &filters.Request{Record: &filters.Record{}}, r: httptest.NewRequest(http.MethodGet, "/", nil), dest: Destination{APIService: "v1.example.com"}}
		if got := x.statusOf(&transport.Error{Sent: true, Err: transport.ErrUnresponsive}).Error(); !strings.Contains(got, want) {
			t.Errorf("message = %q, want it to contain %q", got, want)
		}
	}
}

func TestStatusUsesClientEncoding(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend()
	r := w.request(http.MethodGet, resource, nil)
	r.Header.Set("Accept", "application/yaml")
	a := w.do(w.client(), r)
	if a.Header.Get("Content-Type") != "application/yaml" || !strings.Contains(a.body, "reason: ServiceUnavailable") {
		t.Errorf("headers %v, body %s, want a Status in application/yaml", a.Header, a.body)
	}
}

func TestRequestAboveConcurrencyLimitIsRejected(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{MaxInFlight: 4})
	hold := make(chan struct{})
	var inside atomic.Int64
	hung := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		defer inside.Add(-1)
		if r.URL.Query().Get("watch") != "" {
			rw.(http.Flusher).Flush()
		}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	b := w.backend(w.serve(hung))
	c := w.client()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 { // watches with a response header hold no slot
		resp, err := c.Do(w.request(http.MethodGet, "/apis/metrics.example.com/v1/nodes?watch=1", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, _ = io.Copy(io.Discard, resp.Body); _ = resp.Body.Close() })
	}
	for range 3 {
		wg.Go(func() { w.do(c, w.request(http.MethodGet, resource, nil)) })
	}
	eventually(t, time.Minute, "one user has as many of the four places as one may", func() bool { return b.Report().InFlight == 3 && inside.Load() == 13 })
	for range 20 {
		start := time.Now()
		a := w.do(c, w.request(http.MethodGet, resource, nil))
		if s := a.status(t); a.StatusCode != 429 || s.Reason != metav1.StatusReasonTooManyRequests || a.Header.Get("Retry-After") != "1" {
			t.Fatalf("request over the limit = %s %s, want 429 with Retry-After 1", a.Status, a.body)
		}
		if took := time.Since(start); took > time.Minute { // no request releases a slot, so waiting would never end
			t.Errorf("a refusal took %s, want at most a minute", took)
		}
	}
	// Another backend has separate slots.
	w.register(transport.Spec{Name: "ns/other:443", ServerName: serviceName, CABundle: w.ca.PEM()}, w.serve(&recorder{}))
	if a := w.get(resource); a.StatusCode != 200 {
		t.Errorf("GET of another backend = %s, want 200", a.Status)
	}
	close(hold)
	cancel()
	wg.Wait()
	eventually(t, time.Minute, "every place is given back", func() bool { return b.Report().InFlight == 0 })
}

func TestClientDisconnectIsNotCountedAsFailure(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	arrived, left := make(chan struct{}), make(chan struct{})
	b := w.backend(w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	})))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if resp, err := w.client().Do(w.request(http.MethodGet, resource, nil).WithContext(ctx)); err == nil {
			_ = resp.Body.Close()
		}
	})
	<-arrived
	cancel()
	<-left
	wg.Wait()
	eventually(t, time.Minute, "the place is given back", func() bool { return b.Report().InFlight == 0 })
	if w.logs.FilterMessage("request not served").Len() != 0 {
		t.Errorf("%d log entries for a client that left, want 0", w.logs.FilterMessage("request not served").Len())
	}
}

// A drain ends watches as their protocol requires, and interrupts no other request.
func TestDrainEndsWatch(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "event\n")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})))
	drain, end := context.WithCancel(context.Background())
	defer end()
	front := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(drain, cancel)()
		w.chain(rw, r.WithContext(ctx))
	}))
	w.front = front
	for _, c := range []*http.Client{w.client(), w.client("http/1.1")} {
		resp, err := c.Do(w.request(http.MethodGet, "/apis/metrics.example.com/v1/nodes?watch=1", nil))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := lines.ReadString('\n'); err != io.EOF {
				t.Errorf("end of the watch: error = %v, want %v", err, io.EOF)
			}
			_ = resp.Body.Close()
		}()
	}
	end()
}
