package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

// watched is a front door with every output that operators can read: log, audit log, audit webhook, spans.
type watched struct {
	t       *testing.T
	dir     string
	config  *rest.Config // of an administrator, by certificate
	process *programs.Process
	sinks   map[string]*sink
}

// sink stores the data that is written to it.
type sink struct {
	mu   sync.Mutex // guards the following fields
	kept bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.String()
}

// startWatched starts `aggregator dev` with an extension server and every output enabled.
func startWatched(t *testing.T, files map[string]string, flags ...string) *watched {
	t.Helper()
	w := &watched{t: t, dir: t.TempDir(), sinks: map[string]*sink{"log": {}, "spans": {}, "webhook": {}}}
	for name, text := range files {
		w.write(name, text)
	}
	w.write("webhook.kubeconfig", w.receiver())
	args := append([]string{"--log-level", "debug", "--access-log",
		"--tracing-endpoint", w.collector(), "--tracing-sampling-rate-per-million", "1000000",
		"--audit-log-path", "audit.log", "--audit-log-mode", "blocking", "--audit-policy-file", "policy.yaml",
		"--audit-webhook-config-file", "webhook.kubeconfig", "--audit-webhook-batch-max-wait", "50ms", "--audit-webhook-initial-backoff", "10ms",
	}, flags...)
	p, file, err := programs.StartDev(binaries, w.dir, w.sinks["log"], args...)
	if p != nil {
		w.process = p
		t.Cleanup(func() {
			p.Finish(t)
			p.Show(t)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// audited is the audit log.
func (w *watched) audited() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// receiver accepts audit events, and refuses every other batch with a message that repeats the batch. It returns a kubeconfig
// for the sender.
func (w *watched) receiver() string {
	refuse := false
	var mu sync.Mutex // guards refuse
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.sinks["webhook"].Write(body)
		mu.Lock()
		refuse = !refuse
		no := refuse
		mu.Unlock()
		if no {
			rw.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
		}
	}))
	w.t.Cleanup(server.Close)
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"users":[{"name":"u","user":{"token":"canary-of-the-webhook"}}]}`
}

// collector receives spans.
func (w *watched) collector() string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, spans{out: w.sinks["spans"]})
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) }) // ends when it is stopped
	w.t.Cleanup(func() {
		s.Stop()
		wg.Wait()
	})
	return l.Addr().String()
}

type spans struct {
	collector.UnimplementedTraceServiceServer
	out io.Writer
}

func (s spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	_, err := fmt.Fprintln(s.out, r)
	return &collector.ExportTraceServiceResponse{}, err
}

// call is one request as it is on the wire.
type call struct {
	method, target string
	headers        []string // "Name: value"
	body           string
	noCertificate  bool // no client certificate
}

// send sends the request over a new connection, and returns the status and the complete response.
func (w *watched) send(c call) (code int, answer string) {
	w.t.Helper()
	config, err := rest.TLSConfigFor(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	if c.noCertificate {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	}
	u, err := url.Parse(w.config.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", u.Host, config)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(programs.Patience)); err != nil {
		w.t.Fatal(err)
	}
	headers := append([]string{"Host: " + u.Host}, c.headers...)
	if c.body != "" {
		headers = append(headers, fmt.Sprintf("Content-Length: %d", len(c.body)))
	}
	// A server that refuses early may not read the whole request. Only its response matters.
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\n\r\n%s", c.method, c.target, strings.ReplaceAll(strings.Join(headers, "\r\n"), "{host}", u.Host), c.body)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatalf("response to %s %.200s: %v, want one", c.method, c.target, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, fmt.Sprint(response.Header)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		w.t.Fatalf("body of the response to %s %.200s: %v, want no error", c.method, c.target, err)
	}
	return response.StatusCode, fmt.Sprint(response.Header) + string(body)
}

// spellings returns the encodings in which a secret may appear. A secret within a longer text has three forms of base64,
// depending on its offset. The test looks for the common middle part of each.
func spellings(secret string) []string {
	all := []string{secret, url.QueryEscape(secret), hex.EncodeToString([]byte(secret))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + secret))
		first := (shift*8 + 5) / 6
		all = append(all, text[first:len(text)-2])
	}
	return all
}

func holds(text, secret string) bool {
	for _, s := range spellings(secret) {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}
