package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/metrics"
)

var errSenderLeft = errors.New("the sender left")

// bodyOf is a body of n bytes, followed by the error end.
func bodyOf(n int64, end error) io.Reader {
	return io.MultiReader(io.LimitReader(zeros{}, n), ending{end})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type ending struct{ err error }

func (f ending) Read([]byte) (int, error) { return 0, f.err }

// gated blocks until open is closed, and then fails.
type gated struct{ open <-chan struct{} }

func (g gated) Read([]byte) (int, error) { <-g.open; return 0, errSenderLeft }

// An error in a request, or in its body, is attributed to the sender: the error has the sender's class, and the endpoint, the failure metrics,
// the detection of silence and the log are unchanged. This holds for both protocols.
func TestA35SenderErrorsAreNotBackendFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const large = 1 << 20 // more than is buffered or kept for retries
	for _, test := range []struct {
		name   string
		change func(*http.Request)
		class  Class
		code   int    // instead of an error: the backend's response
		h2     int    // the same over HTTP/2, which reads only the announced length of a body; over HTTP/1.1 the backend may respond first
		want   string // part of the error
	}{
		{name: "a blank in the path", change: func(r *http.Request) { r.URL.Opaque = "/x HTTP/1.1" }, class: ClassRequest, want: "0x20"},
		{name: "a line end in the path", change: func(r *http.Request) { r.URL.Opaque = "/x\r\nA: b" }, class: ClassRequest, want: "0x0d"},
		{name: "bytes in the path beyond ASCII", change: func(r *http.Request) { r.URL.Opaque = "/\xa0" }, class: ClassRequest, want: "0xa0"},
		{name: "a bad escape in the query", change: func(r *http.Request) { r.URL.RawQuery = "a=%zz" }, class: ClassRequest, want: "escape"},
		{name: "a bad method", change: func(r *http.Request) { r.Method = "GE T" }, class: ClassRequest, want: "0x20"},
		{name: "CONNECT", change: func(r *http.Request) { r.Method = "CONNECT" }, class: ClassRequest, want: "CONNECT"},
		{name: "a host that is none", change: func(r *http.Request) { r.Host = "a b" }, class: ClassRequest, want: "0x20"},
		{name: "a name that is no token", change: func(r *http.Request) { r.Header["a b"] = []string{"c"} }, class: ClassRequest, want: "token"},
		{name: "a line end in a value", change: func(r *http.Request) { r.Header["A"] = []string{"b\r\nc"} }, class: ClassRequest, want: "control byte"},
		{name: "a short body that breaks off", change: uploading(100, 50, errSenderLeft), class: ClassRequest, want: "the sender left"},
		{name: "a short body that is shorter than it says", change: uploading(100, 50, io.EOF), class: ClassRequest, want: "EOF"},
		{name: "a long body that breaks off", change: uploading(large, large/2, errSenderLeft), class: ClassRequest, want: "the sender left"},
		{name: "a long body that is shorter than it says", change: uploading(large, large/2, io.EOF), class: ClassRequest, want: "not as long"},
		{name: "a long body that is longer than it says", change: uploading(large, 2*large, io.EOF), class: ClassRequest, want: "not as long", h2: http.StatusOK},
		{name: "a body of no length that breaks off", change: uploading(-1, large, errSenderLeft), class: ClassRequest, want: "the sender left"},
		{name: "a short body that does not come", change: stalled(100), class: ClassRequest, want: "body"},
		{name: "a long body that does not come", change: stalled(large), class: ClassRequest, want: "the request's body"},
		{name: "a body of no length that does not come", change: stalled(-1), class: ClassRequest, want: "the request's body"},
		{name: "a sender that leaves", change: func(r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			*r = *r.WithContext(ctx)
			r.URL.Path = "/wait"
			time.AfterFunc(50*time.Millisecond, cancel)
		}, class: ClassCanceled, want: "canceled"},
		{name: "an upload that the backend refuses unread", change: func(r *http.Request) {
			uploading(64<<20, 64<<20, io.EOF)(r)
			r.URL.Path = "/refuse"
		}, code: http.StatusRequestEntityTooLarge},
	} {
		for _, proto := range []string{"h2", "http/1.1"} {
			t.Run(test.name+" over "+proto, func(t *testing.T) {
				t.Parallel() // some wait for most of the time
				w := newTestEnv(t)
				s := w.serveProto(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/wait":
						<-r.Context().Done()
					case "/refuse":
						rw.WriteHeader(http.StatusRequestEntityTooLarge)
					default:
						_, _ = io.Copy(io.Discard, r.Body)
					}
				}), proto)
				core, logs := observer.New(zapcore.InfoLevel)
				registry := prometheus.NewRegistry()
				m := metrics.NewBackends(registry)
				b := w.backend(w.set(func(o *Options) { o.Logger, o.Metrics = zap.New(core), m }), s.address)
				if _, err := get(t, b); err != nil {
					t.Fatal(err)
				}
				code := test.code
				if proto == "h2" && test.h2 != 0 {
					code = test.h2
				}
				for range softFailures + 1 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://ignored/a", nil)
					if err != nil {
						t.Fatal(err)
					}
					test.change(r)
					resp, err := b.RoundTrip(r)
					cancel()
					if code != 0 {
						if err != nil || resp.StatusCode != code {
							t.Fatalf("POST = %v with the error %v, want %d", resp, err, code)
						}
						_ = resp.Body.Close()
						continue
					}
					if err == nil && resp.StatusCode == test.h2 {
						_ = resp.Body.Close()
						continue
					}
					if err == nil {
						_ = resp.Body.Close()
						t.Fatalf("POST = %s, want an error of class %s", resp.Status, test.class)
					}
					var failed *Error
					if !errors.As(err, &failed) || failed.Class != test.class || !strings.Contains(err.Error(), test.want) {
						t.Fatalf("POST error = %v (%+v), want class %s and %q", err, failed, test.class, test.want)
					}
				}
				unharmed(t, b, registry, logs)
			})
		}
	}
}

func uploading(says, has int64, end error) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(bodyOf(has, end)), says
	}
}

// stalled is a body that does not arrive before the request's deadline. The deadline begins when the body is read, so a slow
// connection does not end the request earlier.
func stalled(says int64) func(*http.Request) {
	return func(r *http.Request) {
		ctx := &lateDeadline{Context: r.Context(), done: make(chan struct{})}
		*r = *r.WithContext(ctx)
		open := make(chan struct{})
		context.AfterFunc(ctx, func() { time.AfterFunc(500*time.Millisecond, func() { close(open) }) })
		began := sync.OnceFunc(func() { time.AfterFunc(100*time.Millisecond, ctx.end) })
		r.Body, r.ContentLength = io.NopCloser(readerFunc(func(p []byte) (int, error) {
			began()
			return gated{open}.Read(p)
		})), says
	}
}

// lateDeadline is a context whose deadline passes when end is called.
type lateDeadline struct {
	context.Context
	done chan struct{}
}

func (c *lateDeadline) Done() <-chan struct{} { return c.done }

func (c *lateDeadline) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (c *lateDeadline) end() { close(c.done) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func unharmed(t *testing.T, b *Backend, registry *prometheus.Registry, logs *observer.ObservedLogs) {
	t.Helper()
	e := b.Report().Endpoints[0]
	if e.State != "well" || e.LastFailure != "" || e.Ejections != 0 {
		t.Errorf("endpoint = %+v, want the state well without failures and ejections", e)
	}
	var want bytes.Buffer
	want.WriteString("# HELP portico_backend_ejections_total Endpoints taken out of use for a while.\n# TYPE portico_backend_ejections_total counter\n" +
		"portico_backend_ejections_total{backend=\"kube-system/metrics:443\",trust=\"" + b.Report().Trust + "\"} 0\n")
	if err := testutil.GatherAndCompare(registry, &want, "portico_backend_ejections_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "portico_backend_failed_attempts_total" && f.GetName() != "portico_backend_broken_responses_total" {
			continue
		}
		for _, one := range f.GetMetric() {
			if one.GetCounter().GetValue() != 0 {
				t.Errorf("metric %s = %v, want 0", f.GetName(), one)
			}
		}
	}
	if logs.Len() != 0 {
		t.Errorf("log lines = %v, want none", logs.All())
	}
	if _, err := get(t, b); err != nil {
		t.Errorf("GET afterwards failed: %v, want no error", err)
	}
	if s := b.Silence(); !s.Since.IsZero() {
		t.Errorf("silence of the backend = %+v, want none", s)
	}
}

// A body that breaks off after the response has begun also ends the response. This is not a failure of the backend.
func TestA35BodyErrorAfterResponseStartEndsResponse(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t)
			s := w.serveProto(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_ = http.NewResponseController(rw).EnableFullDuplex() // HTTP/2 always is
					rw.(http.Flusher).Flush()
					_, _ = io.Copy(rw, r.Body)
					panic(http.ErrAbortHandler) // otherwise the response could be complete before the connection closes
				}
			}), proto)
			core, logs := observer.New(zapcore.InfoLevel)
			registry := prometheus.NewRegistry()
			m := metrics.NewBackends(registry)
			b := w.backend(w.set(func(o *Options) { o.Logger, o.Metrics = zap.New(core), m }), s.address)
			for range softFailures + 1 {
				open := make(chan struct{})
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://ignored/a", io.NopCloser(gated{open}))
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = -1
				resp, err := b.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				close(open)
				_, err = io.Copy(io.Discard, resp.Body)
				var failed *Error
				if !errors.As(err, &failed) || failed.Class != ClassRequest || !errors.Is(err, ErrRequestBody) {
					t.Errorf("reading the response error = %v, want ErrRequestBody of class %s", err, ClassRequest)
				}
				_ = resp.Body.Close()
			}
			unharmed(t, b, registry, logs)
		})
	}
}
