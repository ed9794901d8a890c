package differential

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// patience bounds one request.
	patience = 2 * time.Minute
	// largest is what is read of an answer.
	largest = 16 << 20
)

// answer is what a server said to one step.
type answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// server is asked the script.
type server struct {
	host      string
	clients   map[string]*http.Client // by the name of who asks
	namespace string
}

func newServer(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	s := &server{host: config.Host, clients: map[string]*http.Client{}, namespace: "differential-" + uuid.NewString()[:8]}
	for who, config := range map[string]*rest.Config{"": config, "anonymous": rest.AnonymousClientConfig(config)} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		own := *client // the library may hand out one that others use
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		s.clients[who] = &own
	}
	return s, nil
}

// ask goes through the script. The answers are in its order.
func (s *server) ask(ctx context.Context, all []step) ([]answer, error) {
	kept := map[string]string{"ns": s.namespace}
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

// until asks one step, again and again if it awaits something. An answer that never comes is an answer too.
func (s *server) until(ctx context.Context, step step, kept map[string]string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := s.one(ctx, step, kept)
		if err != nil || step.Await == 0 || a.Code == step.Await {
			return a, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return a, nil
		}
	}
}

func (s *server) one(ctx context.Context, step step, kept map[string]string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method, path, body, err := step.request(kept)
	if err != nil {
		return a, err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.host+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Accept", "application/json")
	for name, value := range step.Headers {
		request.Header.Set(name, value)
	}
	response, err := s.clients[step.As].Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a = answer{Code: response.StatusCode, Header: response.Header}
	if step.Events > 0 && a.Code == http.StatusOK {
		a.Body, err = events(response.Body, step.Events)
	} else {
		a.Body, err = io.ReadAll(io.LimitReader(response.Body, largest))
	}
	return a, err
}

// events are the first of a watch, as a JSON array.
func events(stream io.Reader, count int) ([]byte, error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, largest)
	var all [][]byte
	for len(all) < count && lines.Scan() {
		all = append(all, bytes.Clone(lines.Bytes()))
	}
	return append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']'), lines.Err()
}

// field is the text at a path such as metadata.resourceVersion.
func field(body []byte, path string) (string, error) {
	var at any
	if err := json.Unmarshal(body, &at); err != nil {
		return "", err
	}
	for _, name := range strings.Split(path, ".") {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	text, ok := at.(string)
	if !ok || text == "" {
		return "", fmt.Errorf("no text at %s", path)
	}
	return text, nil
}

// askOne asks the server of a kubeconfig the whole script, and returns the fields of its answers.
func askOne(kubeconfig string, all []step) ([]map[string]string, error) {
	s, err := newServer(kubeconfig)
	if err != nil {
		return nil, err
	}
	answers, err := s.ask(context.Background(), all)
	if err != nil {
		return nil, err
	}
	for _, client := range s.clients {
		client.CloseIdleConnections()
	}
	var out []map[string]string
	for i, a := range answers {
		out = append(out, fields(all[i], a, s.namespace))
	}
	return out, nil
}
