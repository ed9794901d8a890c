package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// patience bounds the duration of one request.
	patience = 45 * time.Second
	// largest bounds the size of a response that is read.
	largest = 16 << 20
)

// question is one request.
type question struct {
	Name   string
	Method string
	Path   string
	// Type is the content type of the body. Default: application/json.
	Type string
	// Accept is the Accept header. Default: application/json.
	Accept string
	// As is the user of the request. Default: the kubeconfig's user.
	As string
	// Groups are the groups of As.
	Groups []string
	Body   any
	// Await repeats the request until these fields have the given values.
	Await map[string]string
}

// server is a server that receives the questions.
type server struct {
	host   string
	client *http.Client
	// breaks records a question without a response as such. Otherwise it is an error.
	breaks bool
}

func newServer(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *client // client-go may return a shared client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &server{host: config.Host, client: &own}, nil
}

// until repeats a question until the response has the awaited values. After the timeout it returns the latest
// response.
func (s *server) until(ctx context.Context, q question) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		next, err := s.answerTo(ctx, q)
		if err != nil {
			return a, err
		}
		a = next
		fields, there := a.fields(false), true
		for place, text := range q.Await {
			there = there && fields[place] == text
		}
		if there {
			return a, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return a, nil
		}
	}
}

// answerTo sends a question and returns the status code, the warnings, and the body as JSON or as text.
func (s *server) answerTo(ctx context.Context, q question) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var body []byte
	if q.Body != nil {
		if body, err = json.Marshal(q.Body); err != nil {
			return a, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, q.Method, s.host+q.Path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != nil {
		request.Header.Set("Content-Type", or(q.Type, "application/json"))
	}
	request.Header.Set("Accept", or(q.Accept, "application/json"))
	if q.As != "" {
		request.Header.Set("Impersonate-User", q.As)
		for _, group := range q.Groups {
			request.Header.Add("Impersonate-Group", group)
		}
	}
	response, err := s.client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		return a, err
	}
	a = answer{Code: response.StatusCode, Warnings: response.Header.Values("Warning")}
	if json.Unmarshal(text, &a.Body) != nil {
		a.Body = string(text)
	}
	return a, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
