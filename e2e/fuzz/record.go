package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/httpengine/portico/http2/http2test"
)

// Seeds of real traffic: kubectl and curl run against net/http's server, which responds like an API server, over HTTP/1.1 and
// HTTP/2. The plaintext of each connection is recorded. kubectl and curl must be installed.

// sessions are the commands to run. ADDRESS is replaced with the server's address, and http1 selects the protocol.
var sessions = []struct {
	name  string
	http1 bool
	words string
}{
	{"kubectl-get", false, "kubectl get pods -n default"},
	{"kubectl-list-wide", false, "kubectl get pods -A -o wide"},
	{"kubectl-delete", false, "kubectl delete pod x -n default --wait=false"},
	{"kubectl-raw", true, "kubectl get --raw /api/v1/namespaces/default/pods?limit=500"},
	{"kubectl-watch", true, "kubectl get --raw /api/v1/pods?watch=true&resourceVersion=0"},
	{"kubectl-logs", true, "kubectl logs x -n default"},
	{"kubectl-exec", true, "kubectl exec x -n default -- true"},
	{"curl-get", true, "curl -s ADDRESS/api/v1/pods"},
	{"curl-post", true, "curl -s -XPOST -HContent-Type:application/json -d{} ADDRESS/api/v1/namespaces/default/pods"},
	{"curl-chunked", true, "curl -s -XPUT -HTransfer-Encoding:chunked -d{} ADDRESS/api/v1/namespaces/default/pods/x"},
	{"curl-head", true, "curl -s -I ADDRESS/healthz"},
	{"curl-expect", true, "curl -s -HExpect:100-continue -d{} ADDRESS/api/v1/namespaces/default/pods"},
	{"curl-get-2", false, "curl -s ADDRESS/api/v1/pods"},
	{"curl-post-2", false, "curl -s -XPOST -HContent-Type:application/json -d{} ADDRESS/api/v1/namespaces/default/pods"},
	{"curl-head-2", false, "curl -s -I ADDRESS/healthz"},
}

// mostSeed limits the size of a seed in bytes, because the fuzzer works better with small seeds.
const mostSeed = 4 << 10

func recordSeeds(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, s := range sessions {
		heard, said, err := session(ctx, dir, s.http1, strings.Fields(s.words))
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		seeds := map[string]string{}
		if s.http1 {
			seeds["internal/httpengine/portico/http1/testdata/fuzz/FuzzServerDifferential/"+s.name] = seed(heard, "bool(true)")
			seeds["internal/transport/testdata/fuzz/FuzzAnswers/"+s.name] = fmt.Sprintf("go test fuzz v1\nbool(false)\nstring(%q)\nint(7)\n", cut(said))
		} else {
			_, frames, ok := bytes.Cut(heard, []byte("\r\n\r\nSM\r\n\r\n"))
			if !ok {
				return fmt.Errorf("%s: it did not speak HTTP/2", s.name)
			}
			verbatim := append([]byte{http2test.Verbatim}, frames...)
			answers := append([]byte{http2test.Verbatim}, said...)
			seeds["internal/httpengine/portico/http2/server/testdata/fuzz/FuzzServerDifferential/"+s.name] = seed(verbatim, "bool(false)")
			seeds["internal/httpengine/portico/http2/server/testdata/fuzz/FuzzFrames/"+s.name] = seed(verbatim, "bool(true)", "bool(false)")
			seeds["internal/httpengine/portico/http2/client/testdata/fuzz/FuzzClientDifferential/"+s.name] = seed(answers, "byte('\\x00')")
			seeds["internal/httpengine/portico/http2/client/testdata/fuzz/FuzzFrames/"+s.name] = seed(answers, "byte('\\x00')", "bool(true)", "bool(true)")
		}
		for path, text := range seeds {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
		fmt.Printf("%-20s %d bytes of requests, %d of answers\n", s.name, len(heard), len(said))
	}
	return nil
}

func cut(b []byte) []byte { return b[:min(len(b), mostSeed)] }

// seed returns a file in the format of Go's fuzzing corpus.
func seed(data []byte, more ...string) string {
	return "go test fuzz v1\n[]byte(" + strconv.Quote(string(cut(data))) + ")\n" + strings.Join(more, "\n") + "\n"
}

// session runs a command, and returns the bytes of its longest connection in each direction.
func session(ctx context.Context, dir string, http1 bool, words []string) (heard, said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	backend, l, err := serveAPI(http1)
	if err != nil {
		return nil, nil, err
	}
	r := &recorder{backend: backend}
	var all sync.WaitGroup
	all.Go(func() { r.accept(l, &all) })
	address := "https://" + l.Addr().String()
	for i, w := range words {
		words[i] = strings.Replace(w, "ADDRESS", address, 1)
	}
	switch words[0] {
	case "kubectl":
		words = slices.Insert(words, 1, "--server="+address, "--insecure-skip-tls-verify=true", "--token=a.b.c", "--cache-dir="+dir, "--request-timeout=5s")
	case "curl":
		words = append(words, "-k", "-m5", "-HAuthorization: Bearer a.b.c")
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null")
	out, failed := cmd.CombinedOutput()
	_ = l.Close()
	r.close()
	all.Wait()
	backend.Close()
	for _, c := range r.conns {
		if c.heard.Len() > len(heard) {
			heard, said = c.heard.Bytes(), c.said.Bytes()
		}
	}
	if len(heard) == 0 {
		return nil, nil, errors.Join(errors.New("nothing was said"), failed, errors.New(string(out)))
	}
	return heard, said, nil // the exit status of the command does not matter
}

// serveAPI returns a server without TLS, and a listener with TLS.
func serveAPI(http1 bool) (*httptest.Server, net.Listener, error) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(answerLikeAnAPI))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	config := &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	certified.Close()
	if http1 {
		config.NextProtos = []string{"http/1.1"}
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	return s, l, err
}

// recorder forwards connections to a server, and records their bytes.
type recorder struct {
	backend *httptest.Server

	mu    sync.Mutex // guards the following fields
	conns []*recorded
	open  []net.Conn
}

type recorded struct{ heard, said bytes.Buffer }

func (r *recorder) accept(l net.Listener, all *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.backend.Listener.Addr().String())
		if err != nil {
			_ = c.Close()
			continue
		}
		kept := &recorded{}
		r.mu.Lock()
		r.conns, r.open = append(r.conns, kept), append(r.open, c, to)
		r.mu.Unlock()
		all.Go(func() { _, _ = io.Copy(to, io.TeeReader(c, &kept.heard)); _ = to.Close() })
		all.Go(func() { _, _ = io.Copy(c, io.TeeReader(to, &kept.said)); _ = c.Close() })
	}
}

func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		_ = c.Close()
	}
}

// answerLikeAnAPI responds to kubectl's discovery requests and to the requests of the sessions.
func answerLikeAnAPI(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the body of a client that disconnects is incomplete
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", "00000000-0000-0000-0000-000000000000")
	answers := map[string]string{
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1":  `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","delete","watch"],"shortNames":["po"]}]}`,
		"/version": `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`,
	}
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"default"},"spec":{"containers":[{"name":"c"}]}}`
	text, ok := answers[r.URL.Path]
	switch {
	case ok:
	case r.URL.Query().Get("watch") != "":
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+pod+"}\n")
		_ = http.NewResponseController(w).Flush() // a client that has disconnected does not need the event
		text = `{"type":"DELETED","object":` + pod + "}\n"
	case strings.HasSuffix(r.URL.Path, "/exec"):
		w.WriteHeader(http.StatusForbidden)
		text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	case strings.HasSuffix(r.URL.Path, "/pods"):
		text = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + pod + `]}`
	default:
		text = pod
	}
	_, _ = io.WriteString(w, text) // as above
}
