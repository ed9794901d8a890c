package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	mediaJSON       = "application/json"
	// maxBody bounds the size of a response that is read. OpenAPI documents are the largest.
	maxBody = 16 << 20
)

// api sends plain HTTP requests to the API server, so that status codes and bodies stay visible. Typed clients
// convert both into errors.
type api struct {
	client  *http.Client
	base    *url.URL
	timeout time.Duration
}

func newAPI(config *rest.Config, timeout time.Duration) (*api, error) {
	config = rest.CopyConfig(config)
	// Two dozen requests for each APIService are not a significant load, and client-side throttling would distort
	// their latency.
	config.QPS, config.RateLimiter = -1, nil
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the kubeconfig: %w", err)
	}
	client.Timeout = 0 // each request has its own deadline
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, rest.IsConfigTransportTLS(*config))
	if err != nil {
		return nil, fmt.Errorf("server of the kubeconfig: %w", err)
	}
	return &api{client: client, base: base, timeout: timeout}, nil
}

// answer is a response or an error.
type answer struct {
	code   int
	header http.Header
	body   []byte
	err    error
	took   time.Duration // time to the response headers, 0 if it was not measured
}

// send sends one request and reads its response. path may contain a query.
func (a *api) send(ctx context.Context, method, path, accept string, body []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	resp, err := a.open(ctx, method, path, accept, body)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// read reads a response to its end.
func read(resp *http.Response) answer {
	defer func() { _ = resp.Body.Close() }()
	out := answer{code: resp.StatusCode, header: resp.Header}
	var err error
	if out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		out.err = fmt.Errorf("read the answer: %w", err)
	}
	return out
}

// askAs sends a request as another user. The caller needs the right to impersonate.
func (a *api) askAs(ctx context.Context, user, path string) answer {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := a.request(ctx, http.MethodGet, path, mediaJSON, nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set(authenticationv1.ImpersonateUserHeader, user)
	req.Header.Set(authenticationv1.ImpersonateGroupHeader, "system:authenticated")
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// open sends one request. The body of the response ends with ctx.
func (a *api) open(ctx context.Context, method, path, accept string, body []byte) (*http.Response, error) {
	req, err := a.request(ctx, method, path, accept, body)
	if err != nil {
		return nil, err
	}
	return a.client.Do(req)
}

func (a *api) request(ctx context.Context, method, path, accept string, body []byte) (*http.Request, error) {
	path, query, _ := strings.Cut(path, "?")
	u := a.base.JoinPath(path)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "aggregator-doctor")
	if body != nil {
		req.Header.Set("Content-Type", mediaJSON)
	}
	return req, nil
}

// get reads an object.
func (a *api) get(ctx context.Context, path string, into any) error {
	return a.send(ctx, http.MethodGet, path, mediaJSON, nil).decode(into)
}

// create posts an object and decodes the response. It is used for review objects.
func (a *api) create(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return a.send(ctx, http.MethodPost, path, mediaJSON, body).decode(into)
}

func (r answer) decode(into any) error {
	if r.err != nil {
		return r.err
	}
	if !r.passed() {
		if s := r.status(); s != nil {
			return &apierrors.StatusError{ErrStatus: *s}
		}
		return apierrors.NewGenericServerResponse(r.code, http.MethodGet, schema.GroupResource{}, "", string(r.body), 0, true)
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

func (r answer) passed() bool { return r.err == nil && r.code >= 200 && r.code < 300 }

// status returns the Status in the body, or nil if the body is something else.
func (r answer) status() *metav1.Status {
	var s metav1.Status
	if json.Unmarshal(r.body, &s) != nil || s.Kind != "Status" {
		return nil
	}
	return &s
}

// text returns the error, the message of a Status, or the plain body.
func (r answer) text() string {
	switch s := r.status(); {
	case r.err != nil:
		return r.err.Error()
	case s != nil:
		return s.Message
	}
	return string(r.body)
}
