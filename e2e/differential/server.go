package differential

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// patience bounds the duration of one request.
	patience = 2 * time.Minute
	// settling bounds the wait for the effect of a controller.
	settling = time.Minute
	// largest bounds the size of a response that is read.
	largest = 16 << 20
)

// answer is the response of a server to one step.
type answer struct {
	Code    int
	Header  http.Header
	Trailer http.Header
	Interim []int // status codes of preceding 1xx responses
	Broken  bool  // the response ended prematurely
	Body    []byte
}

// server is a server that receives the script.
type server struct {
	host      string
	configs   map[string]*rest.Config // by the name of the user
	clients   map[string]*http.Client
	namespace string
	backend   *backend
}

func newServer(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "differential"
	s := &server{
		host: config.Host, clients: map[string]*http.Client{}, namespace: "differential-" + uuid.NewString()[:8],
		configs: map[string]*rest.Config{"": config, "anonymous": rest.AnonymousClientConfig(config)},
	}
	for who, config := range s.configs {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		own := *client // client-go may return a shared client
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		s.clients[who] = &own
	}
	s.backend, err = startBackend(s.namespace)
	return s, err
}

// savedValues returns the initial values for the script.
func (s *server) savedValues() map[string]string {
	return map[string]string{
		"ns": s.namespace, "group": group, "port": strconv.Itoa(s.backend.Port), "dead": strconv.Itoa(s.backend.Dead),
		"ca": base64.StdEncoding.EncodeToString(s.backend.CA), "stranger": base64.StdEncoding.EncodeToString(s.backend.OtherCA),
	}
}

// steady replaces the values that are specific to a server.
func (s *server) steady(text string) string {
	port, dead := strconv.Itoa(s.backend.Port), strconv.Itoa(s.backend.Dead)
	text = strings.NewReplacer(
		s.namespace, "{ns}", strings.TrimPrefix(s.host, "https://"), "{host}", "localhost:"+port, "{backend}", "localhost:"+dead, "{nobody}",
	).Replace(text)
	return word(dead, word(port, text, "{port}"), "{dead}")
}

// word replaces a whole word in a text. The digits of a port may also be part of a UID.
func word(is, text, with string) string {
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(is)+`\b`).ReplaceAllLiteralString(text, with)
}

// run sends the steps of the script. The answers are in the same order.
func (s *server) run(ctx context.Context, all []step) ([]answer, error) {
	kept := s.savedValues()
	var answers []answer
	for _, step := range all {
		a, err := s.until(ctx, step, kept)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.host, step.Name, err)
		}
		for name, path := range step.Keep {
			value, err := field(a.Body, path)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: keep %s: %w in %s", s.host, step.Name, name, err, a.Body)
			}
			kept[name] = value
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// until sends one step, and repeats it if it awaits a condition. After the timeout it returns the latest response.
func (s *server) until(ctx context.Context, step step, kept map[string]string) (answer, error) {
	limit := patience
	if len(step.Until)+len(step.While) > 0 {
		limit = settling
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := s.one(ctx, step, kept)
		if err != nil && step.Breaks {
			a.Broken, err = true, nil
		}
		if err != nil || s.arrived(step, a) {
			return a, err
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return a, nil
		}
	}
}

func (s *server) arrived(step step, a answer) bool {
	if step.Await != 0 && a.Code != step.Await {
		return false
	}
	if len(step.Until)+len(step.While) == 0 {
		return true
	}
	got := fields(step, a, s.steady)
	for place, want := range step.Until {
		if got[place] != want {
			return false
		}
	}
	for place, not := range step.While {
		if got[place] == not {
			return false
		}
	}
	return true
}

func (s *server) one(ctx context.Context, step step, kept map[string]string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := step.words(kept)
	if err != nil {
		return a, err
	}
	if step.Raw {
		return s.raw(ctx, step, w)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		a.Interim = append(a.Interim, code)
		return nil
	}})
	request, err := http.NewRequestWithContext(ctx, w.method, s.host+w.target, strings.NewReader(w.body))
	if err != nil {
		return a, err
	}
	request.Header = w.header
	response, err := s.clients[step.As].Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.Code, a.Header = response.StatusCode, response.Header
	if step.Events > 0 && a.Code == http.StatusOK {
		a.Body, err = events(response.Body, step.Events)
	} else {
		a.Body, err = io.ReadAll(io.LimitReader(response.Body, largest))
	}
	a.Trailer = response.Trailer
	return a, err
}

// events returns the first events of a watch as a JSON array.
func events(stream io.Reader, count int) ([]byte, error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, largest)
	var all [][]byte
	for len(all) < count && lines.Scan() {
		all = append(all, bytes.Clone(lines.Bytes()))
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']'), lines.Err()
}

// field returns the string at a path such as metadata.resourceVersion.
func field(body []byte, path string) (string, error) {
	var at any
	if err := json.Unmarshal(body, &at); err != nil {
		return "", err
	}
	text := textAt(at, path)
	if text == "" {
		return "", fmt.Errorf("no text at %s", path)
	}
	return text, nil
}

// askOne sends the whole script to the server of a kubeconfig and returns the fields of its answers.
func askOne(kubeconfig string, all []step) ([]map[string]string, error) {
	s, err := newServer(kubeconfig)
	if err != nil {
		return nil, err
	}
	defer s.backend.close()
	defer func() {
		for _, client := range s.clients {
			client.CloseIdleConnections()
		}
	}()
	answers, err := s.run(context.Background(), all)
	if err != nil {
		return nil, err
	}
	var out []map[string]string
	for i, a := range answers {
		out = append(out, fields(all[i], a, s.steady))
	}
	return out, nil
}

// raw sends the exact bytes of the script over HTTP/1.1. net/http's client would normalize them.
func (s *server) raw(ctx context.Context, step step, w words) (a answer, err error) {
	config, err := rest.TLSConfigFor(s.configs[step.As])
	if err != nil {
		return a, err
	}
	host := strings.TrimPrefix(s.host, "https://")
	own := config.Clone()
	own.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", host)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return a, err
		}
	}
	upgrade := w.header.Get("Upgrade") != ""
	if _, err := io.WriteString(conn, headOfRaw(w, host, upgrade)); err != nil {
		return a, err
	}
	if !upgrade {
		if _, err := io.WriteString(conn, w.body); err != nil {
			return a, err
		}
	}
	return readRaw(conn, w)
}

func headOfRaw(w words, host string, upgrade bool) string {
	var b strings.Builder
	b.WriteString(w.method + " " + w.target + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: differential\r\n")
	header := w.header.Clone()
	if header.Get("Connection") == "" {
		header.Set("Connection", "close")
	}
	if w.body != "" && !upgrade && header.Get("Transfer-Encoding") == "" {
		header.Set("Content-Length", strconv.Itoa(len(w.body)))
	}
	_ = header.Write(&b) // a strings.Builder does not return errors
	b.WriteString("\r\n")
	return b.String()
}

// readRaw reads a response, which may end prematurely. For a tunnel it reads the echoed data.
func readRaw(conn net.Conn, w words) (a answer, err error) {
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: w.method})
		if err != nil {
			return a, err
		}
		a.Code, a.Header = response.StatusCode, response.Header
		switch {
		case a.Code == http.StatusSwitchingProtocols:
			if _, err := io.WriteString(conn, w.body); err != nil {
				return a, err
			}
			a.Body, err = io.ReadAll(io.LimitReader(reader, largest))
			return a, err
		case a.Code < 200:
			a.Interim = append(a.Interim, a.Code)
			continue
		}
		a.Body, err = io.ReadAll(io.LimitReader(response.Body, largest))
		a.Trailer = response.Trailer
		_ = response.Body.Close() // reading reported the error already
		return a, err
	}
}
