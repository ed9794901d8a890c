package rights

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// patience bounds the duration of one request.
	patience = 30 * time.Second
	// settling bounds the wait for the effect of a controller or an informer.
	settling = time.Minute
	// largest bounds the size of a response that is read.
	largest = 16 << 20
)

// The content types of patches.
const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// question is one request.
type question struct {
	Name   string
	Method string
	Path   string
	// Type is the content type of the body. Default: application/json.
	Type string
	Body any
	// Watch is true if a successful response does not end. Only its headers are read.
	Watch bool
	// Lines returns the parts of a successful response that are compared in addition to the code. It may be nil.
	Lines func(body any) []string
	// Headers are sent in addition to the credentials.
	Headers http.Header
}

// answer is the response of a server.
type answer struct {
	Code    int      `json:"c"`
	Reason  string   `json:"r,omitempty"`
	Message string   `json:"m,omitempty"`
	Lines   []string `json:"l,omitempty"`
}

// server is a server that receives the questions.
type server struct {
	host   string
	config *rest.Config
	admin  *http.Client
	// settled counts the calls of settle.
	settled int
}

func newServer(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	admin, err := client(config)
	if err != nil {
		return nil, err
	}
	return &server{host: strings.TrimSuffix(config.Host, "/"), config: rest.AnonymousClientConfig(config), admin: admin}, nil
}

// client returns a client with a separate connection.
func client(config *rest.Config) (*http.Client, error) {
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	var way http.RoundTripper = &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true, DisableCompression: true}
	if way, err = rest.HTTPWrappersForConfig(config, way); err != nil {
		return nil, err
	}
	return &http.Client{Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

func (s *server) close() { s.admin.CloseIdleConnections() }

// send returns the answer and its whole body.
func send(ctx context.Context, c *http.Client, host string, q question, introduce func(http.Header)) (a answer, body any, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var sent []byte
	if q.Body != nil {
		if sent, err = json.Marshal(q.Body); err != nil {
			return a, nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, q.Method, host+q.Path, bytes.NewReader(sent))
	if err != nil {
		return a, nil, err
	}
	request.Header.Set("Accept", "application/json, */*;q=0.1")
	if q.Body != nil {
		request.Header.Set("Content-Type", "application/json")
		if q.Type != "" {
			request.Header.Set("Content-Type", q.Type)
		}
	}
	for name, values := range q.Headers {
		request.Header[name] = values
	}
	if introduce != nil {
		introduce(request.Header)
	}
	response, err := c.Do(request)
	if err != nil {
		return a, nil, fmt.Errorf("%s: %w", q.Name, err)
	}
	defer response.Body.Close()
	a.Code = response.StatusCode
	if q.Watch && a.Code == http.StatusOK {
		return a, nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		return a, nil, fmt.Errorf("%s: %w", q.Name, err)
	}
	if a.Code < 400 && q.Lines == nil {
		return a, json.RawMessage(text), nil
	}
	if json.Unmarshal(text, &body) != nil {
		body = string(text)
	}
	if a.Code >= 400 {
		a.Reason, a.Message = status(body)
		if a.Lines = causes(body); a.Lines != nil {
			a.Message, _, _ = strings.Cut(a.Message, " is invalid: ") // they are part of the message, in any order
		}
	} else {
		a.Lines = q.Lines(body)
	}
	slices.Sort(a.Lines)
	a.Lines = slices.Compact(a.Lines)
	return a, body, nil
}

// causes returns the fields in the causes of a Status. Package kinds compares their messages.
func causes(body any) []string {
	list, _ := at(body, "details", "causes").([]any)
	var out []string
	for _, c := range list {
		if at(body, "code") == float64(http.StatusUnprocessableEntity) {
			out = append(out, fmt.Sprint(at(c, "field"), " ", at(c, "reason")))
		}
	}
	return out
}

// status returns the reason and message of an error. If the body is not a Status, its text is the message.
func status(body any) (reason, message string) {
	switch body := body.(type) {
	case map[string]any:
		reason, _ = body["reason"].(string)
		message, _ = body["message"].(string)
	case string:
		message = strings.TrimSpace(body)
	}
	return reason, steady(message)
}

// Variable parts of texts. has is a substring of all matches, because most of the hundred thousand texts contain none
// and need not be searched.
var varying = []struct {
	pattern    *regexp.Regexp
	has, named string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "-4", "<uid>"},
	{regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "T", "<time>"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "10.", "<cluster address>"},
}

func steady(text string) string {
	for _, v := range varying {
		if strings.Contains(text, v.has) {
			text = v.pattern.ReplaceAllString(text, v.named)
		}
	}
	return text
}

// about replaces the user name in an answer, so that the answers of most personas are equal.
func (a answer) about(user string) answer {
	a.Message = strings.ReplaceAll(a.Message, `ser "`+user+`"`, `ser "{user}"`)
	head, held, ok := strings.Cut(a.Message, notHeld)
	if ok { // the order of verbs is unspecified
		a.Message = head + strings.TrimSuffix(notHeld, "\n")
		for _, line := range strings.Split(held, "\n") {
			a.Lines = append(a.Lines, sortedVerbs(line))
		}
		slices.Sort(a.Lines)
	}
	return a
}

// notHeld precedes the rules, one per line.
const notHeld = "permissions not currently held:\n"

var verbsOfRule = regexp.MustCompile(`Verbs:\[([^]]*)\]`)

func sortedVerbs(rule string) string {
	return verbsOfRule.ReplaceAllStringFunc(rule, func(verbs string) string {
		all := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(verbs, "Verbs:["), "]"))
		slices.Sort(all)
		return "Verbs:[" + strings.Join(all, " ") + "]"
	})
}
