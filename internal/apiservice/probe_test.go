package apiservice

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/transport"
)

// toServer is a transport that sends requests for any host to one server.
type toServer struct {
	http.RoundTripper
	host string
}

func (l toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = l.host
	return l.RoundTripper.RoundTrip(r)
}

func serve(t *testing.T, h http.HandlerFunc) toServer {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return toServer{server.Client().Transport, strings.TrimPrefix(server.URL, "https://")}
}

func TestProbeRequestMatchesKubeAggregator(t *testing.T) {
	got := make(chan *http.Request, 1)
	rt := serve(t, func(w http.ResponseWriter, r *http.Request) { got <- r })
	o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://server.metrics.svc:443/apis/metrics.k8s.io/v1", endpoints: 1})
	if o.failure != nil {
		t.Fatal(o.failure.text("it"))
	}
	r := <-got
	if r.Method != http.MethodGet || r.URL.RequestURI() != "/apis/metrics.k8s.io/v1" {
		t.Errorf("probe request = %s %s, want GET /apis/metrics.k8s.io/v1", r.Method, r.URL.RequestURI())
	}
	if strings.Join(r.Header["X-Remote-User"], "|") != "system:kube-aggregator" || strings.Join(r.Header["X-Remote-Group"], "|") != "system:masters" {
		t.Errorf("headers of the probe = %v, want user system:kube-aggregator and group system:masters", r.Header)
	}
	if r.Header.Get("Authorization") != "" || r.Header.Get("Accept") != "" {
		t.Errorf("headers of the probe = %v, want no Authorization and no Accept, as with kube-aggregator", r.Header)
	}
	if o.certificateExpires.IsZero() || o.at.IsZero() {
		t.Errorf("outcome = %+v, want a certificate expiry and a time", o)
	}
}

func TestDiscoveryPath(t *testing.T) {
	if got := DiscoveryPath(schema.GroupVersion{Version: "v1"}); got != "/api/v1" {
		t.Errorf("DiscoveryPath(v1) = %s, want /api/v1", got)
	}
	if got := DiscoveryPath(schema.GroupVersion{Group: "a.io", Version: "v2"}); got != "/apis/a.io/v2" {
		t.Errorf("DiscoveryPath(a.io/v2) = %s, want /apis/a.io/v2", got)
	}
}

func TestProbeResultDependsOnStatusOnly(t *testing.T) {
	for status, passes := range map[int]bool{200: true, 204: true, 299: true, 301: false, 304: false, 400: false, 401: false, 403: false, 404: false, 500: false, 503: false} {
		var asked atomic.Int64
		rt := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		})
		o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 1})
		if (o.failure == nil) != passes {
			t.Errorf("status %d: failure = %+v, want success %t", status, o.failure, passes)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("status %d: %d requests, want 1: one endpoint, and redirects are not followed", status, n)
		}
	}
}

func TestProbeReadsLittleAndKeepsConnection(t *testing.T) {
	connections := make(chan string, 3)
	rt := serve(t, func(w http.ResponseWriter, r *http.Request) {
		connections <- r.RemoteAddr
		_, _ = io.WriteString(w, strings.Repeat("x", 64<<10))
	})
	for range 3 {
		if o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 1}); o.failure != nil {
			t.Fatal(o.failure)
		}
	}
	if a, b, c := <-connections, <-connections, <-connections; a != b || b != c {
		t.Errorf("three probes used connections %s, %s and %s, want one connection", a, b, c)
	}
}

func TestProbeDoesNotWaitForEndlessBody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	rt := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	for try := 1; ; try++ { // on a busy machine a single try can be slow; waiting for the end of a body is slow in each try
		start := time.Now()
		o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 1})
		took := time.Since(start)
		if o.failure == nil && took <= probeTimeout/2 {
			return
		}
		if try == 5 {
			t.Fatalf("probe of an endless body: failure = %+v after %v in the fifth try, want none within %v", o.failure, took, probeTimeout/2)
		}
	}
}

// script is a transport with given answers: one function for each request, the last one for all later requests.
type script struct {
	answers chan func(ctx context.Context) (int, error)
	asked   chan time.Time
}

func newScript() *script {
	return &script{make(chan func(context.Context) (int, error), 100), make(chan time.Time, 10_000)}
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked <- time.Now()
	answer := <-s.answers
	if len(s.answers) == 0 {
		s.answers <- answer
	}
	code, err := answer(r.Context())
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

func hang(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func status(code int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return code, nil }
}

func TestProbeTriesAnotherEndpointAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript()
		rt.answers <- hang
		rt.answers <- status(200)
		start := time.Now()
		o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 2})
		if o.failure != nil || time.Since(start) != hedgeDelay {
			t.Errorf("failure = %+v after %v, want none after %v", o.failure, time.Since(start), hedgeDelay)
		}
	})
}

func TestProbeTriesEachEndpointBeforeFailing(t *testing.T) {
	for endpoints, attempts := range map[int]int{1: 1, 2: 2, 3: 3, 50: maxAttempts} {
		synctest.Test(t, func(t *testing.T) {
			rt := newScript()
			rt.answers <- status(500)
			o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: endpoints})
			if o.failure == nil || len(rt.asked) != attempts {
				t.Errorf("%d endpoints: %d attempts, failure = %+v, want %d attempts and a failure", endpoints, len(rt.asked), o.failure, attempts)
			}
		})
	}
}

func TestProbeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript()
		rt.answers <- hang
		start := time.Now()
		o := newProber().probe(t.Context(), probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 1})
		if o.failure == nil || !o.failure.slow || time.Since(start) > probeTimeout+hedgeDelay {
			t.Errorf("failure = %+v after %v, want a slow one within %v", o.failure, time.Since(start), probeTimeout+hedgeDelay)
		}
	})
}

func TestConcurrentProbesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newProber()
		rt := newScript()
		rt.answers <- hang
		done := make(chan outcome)
		for range 2 * maxProbes {
			go func() { done <- p.probe(ctx, probeTarget{transport: rt, url: "https://x/apis/a/v1", endpoints: 1}) }()
		}
		synctest.Wait()
		if len(rt.asked) != maxProbes {
			t.Errorf("%d probes at a time, want %d", len(rt.asked), maxProbes)
		}
		cancel()
		for range 2 * maxProbes {
			<-done
		}
	})
}

func TestSameFailureHasSameErrorMessage(t *testing.T) {
	tcp := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: port} }
	certificate := &x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1_700_000_000, 0)}
	for name, test := range map[string]struct {
		err  func(i int) error // the i-th occurrence of the fault
		want string
	}{
		"refused, another endpoint each time": {
			func(i int) error {
				return &transport.Error{Op: transport.OpDial, Endpoint: fmt.Sprintf("10.1.2.%d:8443", i),
					Err: &net.OpError{Op: "dial", Net: "tcp", Addr: tcp(i), Err: syscall.ECONNREFUSED}}
			},
			"dial tcp: connection refused",
		},
		"reset, another local port each time": {
			func(i int) error {
				return &net.OpError{Op: "read", Net: "tcp", Source: tcp(40000 + i), Addr: tcp(8443), Err: syscall.ECONNRESET}
			},
			"read tcp: connection reset by peer",
		},
		"addresses inside an untyped text": {
			func(i int) error {
				return fmt.Errorf("read tcp 10.0.0.%d:%d->10.0.0.9:8443: broken; write [fd00::%d]:443", i, 40000+i, i)
			},
			"read tcp <endpoint>: broken; write <endpoint>",
		},
		"another stream each time": {
			func(i int) error { return http2.StreamError{StreamID: uint32(i), Code: http2.ErrCodeInternal} },
			"stream error: stream ID <n>; INTERNAL_ERROR",
		},
		"GOAWAY": {
			func(i int) error {
				return fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=%d, ErrCode=NO_ERROR, debug=%q", i, "bye")
			},
			`http2: server sent GOAWAY and closed the connection; LastStreamID=<n>, ErrCode=NO_ERROR, debug="bye"`,
		},
		"expired certificate, whose text holds the time of day": {
			func(i int) error {
				return x509.CertificateInvalidError{Cert: certificate, Reason: x509.Expired, Detail: fmt.Sprintf("current time is %d", i)}
			},
			"x509: certificate has expired or is not yet valid: it is valid from 1970-01-01T00:00:00Z to 2023-11-14T22:13:20Z",
		},
		"unknown name": {
			func(i int) error {
				return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere.test", Server: fmt.Sprintf("10.0.0.%d:53", i), IsNotFound: true}}
			},
			"lookup nowhere.test: no such host",
		},
		"no answer in time": {
			func(i int) error {
				return &transport.Error{Op: transport.OpRoundTrip, Endpoint: fmt.Sprint(i), Err: context.DeadlineExceeded}
			},
			"context deadline exceeded",
		},
		"an address that must not be dialled": {
			func(int) error {
				return &transport.Error{Op: transport.OpDial, Err: &transport.ForbiddenAddressError{Why: "it is link-local"}}
			},
			"the Service leads to an address that must not be dialled: it is link-local",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := 1; i < 4; i++ {
				if got := errorMessage(test.err(i)); got != test.want {
					t.Errorf("occurrence %d: errorMessage() = %q, want %q", i, got, test.want)
				}
			}
		})
	}
}

func TestSlowBackendMessageNamesLimit(t *testing.T) {
	const slow = "failing or missing response from u: context deadline exceeded: no response within 5s, the limit of a check"
	for want, err := range map[string]error{
		slow: &transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: context.DeadlineExceeded},
		"failing or missing response from u: dial tcp: context deadline exceeded": &transport.Error{
			Op: transport.OpDial, Err: &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}},
	} {
		if got := ProbeErrorMessage("u", err); got != want {
			t.Errorf("ProbeErrorMessage() = %q, want %q", got, want)
		}
	}
}

func TestErrorMessageIsTruncated(t *testing.T) {
	got := errorMessage(errors.New("evil\x1b[2J\n" + strings.Repeat("x", 10_000)))
	if len(got) > maxErrorMessage+len("...") || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("errorMessage() of a long text has %d bytes: %.40q, want at most %d without control characters", len(got), got, maxErrorMessage+len("..."))
	}
}

func TestFailureFromError(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want failure
	}{
		"refused": {
			&transport.Error{Op: transport.OpDial, Err: syscall.ECONNREFUSED},
			failure{unreachable: true},
		},
		"no answer to the dial": {
			&transport.Error{Op: transport.OpDial, Err: context.DeadlineExceeded},
			failure{unreachable: true, slow: true},
		},
		"wrong certificate": {
			&transport.Error{Op: transport.OpTLS, Err: x509.UnknownAuthorityError{}},
			failure{unreachable: true},
		},
		"no answer to the request": {
			&transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: context.DeadlineExceeded},
			failure{slow: true},
		},
		"a connection that broke under the request": {
			&transport.Error{Op: transport.OpRoundTrip, Sent: true, Err: syscall.ECONNRESET},
			failure{slow: true},
		},
		"forbidden": {
			&transport.Error{Op: transport.OpDial, Err: &transport.ForbiddenAddressError{}},
			failure{unreachable: true, forbidden: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := *failureFromError(test.err)
			got.message = ""
			if got != test.want {
				t.Errorf("failureFromError(%v) = %+v, want %+v", test.err, got, test.want)
			}
		})
	}
}

func TestMergedFailuresAreIndependentOfOrder(t *testing.T) {
	all := []*failure{
		refused(), slow(), failureFromStatus(404), failureFromStatus(503),
		{message: "forbidden", forbidden: true, unreachable: true},
	}
	for _, a := range all {
		for _, b := range all {
			ab, ba := (*failure)(nil).merge(a).merge(b), (*failure)(nil).merge(b).merge(a)
			if *ab != *ba {
				t.Errorf("merge of %+v and %+v = %+v in one order and %+v in the other, want the same", a, b, ab, ba)
			}
			if ab.slow != (a.slow || b.slow) || ab.unreachable != (a.unreachable && b.unreachable) {
				t.Errorf("merge of %+v and %+v = %+v, want slow if one is, unreachable if both are", a, b, ab)
			}
		}
	}
}
