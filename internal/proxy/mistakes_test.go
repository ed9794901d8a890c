package proxy

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

// A client's mistake leads to a 4xx or to the end of its connection. It causes no log entry above debug level, no failure of
// the endpoint and no broken response in the metrics, over either protocol of the backend.
func TestA35ClientErrorsAreNotBackendFailures(t *testing.T) {
	chunked := []string{"POST " + resource + " HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"}
	for _, test := range []struct {
		name    string
		lines   []string
		prepare func(http.ResponseWriter, *http.Request)
		body    string
		began   bool // the response begins before the mistake
		code    int  // 0: no response
	}{
		{name: "a bad method", lines: []string{"GET " + resource + " HTTP/1.1", "Host: a"}, code: 400,
			prepare: func(_ http.ResponseWriter, r *http.Request) { r.Method = "GE T" }},
		{name: "a query that cannot be sent", lines: []string{"GET " + resource + " HTTP/1.1", "Host: a"}, code: 400,
			prepare: func(_ http.ResponseWriter, r *http.Request) { r.URL.RawQuery = "a b" }},
		{name: "a path that cannot be sent", lines: []string{"GET " + resource + " HTTP/1.1", "Host: a"}, code: 400,
			prepare: func(_ http.ResponseWriter, r *http.Request) { r.URL.Path, r.URL.RawPath = "/\u00e4", "/\u00e4" }},
		{name: "a short body that is shorter than its length", lines: []string{"POST " + resource + " HTTP/1.1", "Host: a", "Content-Length: 100"}, body: "short", code: 400},
		{name: "a long body that is shorter than its length", lines: []string{"POST " + resource + " HTTP/1.1", "Host: a", "Content-Length: 10000000"}, body: "short", code: 400},
		{name: "chunks that are none", lines: chunked, body: "zz\r\n", code: 400},
		{name: "chunks that break off", lines: chunked, body: "5\r\nhe", code: 400},
		{name: "chunks that break off when the answer has begun", lines: chunked, body: "5\r\nhello\r\n", began: true, code: 200},
		{name: "an upgrade that cannot be sent", code: 400,
			lines:   []string{"GET " + console + " HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket"},
			prepare: func(_ http.ResponseWriter, r *http.Request) { r.URL.RawQuery = "a b HTTP/1.1" }},
	} {
		for _, proto := range []string{"h2", "http/1.1"} {
			t.Run(test.name+" over "+proto, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				requests := metrics.NewRequests(registry)
				w := newTestEnv(t, Config{Requests: requests}, transport.Options{Metrics: metrics.NewBackends(registry), Logger: zap.NewNop()})
				b := w.backend(w.serveProtos(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if test.began && r.Method == http.MethodPost {
						_ = http.NewResponseController(rw).EnableFullDuplex() // HTTP/2 is always full duplex
						rw.WriteHeader(http.StatusOK)
						rw.(http.Flusher).Flush()
						_, _ = io.Copy(rw, r.Body)
						panic(http.ErrAbortHandler)
					}
					_, _ = io.Copy(io.Discard, r.Body)
				}), proto))
				for range 4 {
					c, r := w.dial()
					w.prepare = test.prepare
					if test.began { // as in HTTP/2, and in this proxy's HTTP/1.1 server
						w.prepare = func(rw http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(rw).EnableFullDuplex() }
					}
					send(t, c, test.lines...)
					if _, err := io.WriteString(c, test.body); err != nil {
						t.Fatal(err)
					}
					left := !test.began && test.body != ""
					if left {
						if err := c.CloseWrite(); err != nil {
							t.Fatal(err)
						}
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil || resp.StatusCode != test.code && !(left && resp.StatusCode == statusClientGone) { // either can be detected first
						t.Fatalf("response = %v, error %v, want %d", resp, err, test.code)
					}
					if test.began {
						if _, err := io.WriteString(c, "zz\r\n"); err != nil {
							t.Fatal(err)
						}
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = c.Close()
				}
				w.prepare = nil
				if a := w.get(resource); a.StatusCode != http.StatusOK {
					t.Errorf("GET after the mistakes = %s, want 200", a.Status)
				}
				eventually(t, time.Minute, "all places are given back", func() bool { return b.Report().InFlight == 0 })
				if e := b.Report().Endpoints[0]; e.State != "well" || e.LastFailure != "" || e.Ejections > 0 {
					t.Errorf("endpoint = %+v, want state well without failures and ejections", e)
				}
				for _, line := range w.logs.All() {
					if line.Level > zapcore.DebugLevel {
						t.Errorf("log entry = %+v, want none above debug level", line)
					}
				}
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					switch f.GetName() {
					case "portico_backend_failed_attempts_total", "portico_backend_broken_responses_total", "portico_backend_ejections_total", "apiserver_request_terminations_total":
						for _, one := range f.GetMetric() {
							if one.GetCounter().GetValue() != 0 {
								t.Errorf("%s = %s, want 0", f.GetName(), fmt.Sprint(one))
							}
						}
					}
				}
			})
		}
	}
}
