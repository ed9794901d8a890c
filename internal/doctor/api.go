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
	// maxBody bounds what is read of one answer. OpenAPI documents are the largest.
	maxBody = 16 << 20
)

// api asks the API server plainly, to see status codes and bodies as they come: typed clients turn both into errors of
// their own.
type api struct {
	client  *http.Client
	base    *url.URL
	timeout time.Duration
}

func newAPI(config *rest.Config, timeout time.Duration) (*api, error) {
	config = rest.CopyConfig(config)
	// Two dozen questions for each APIService are no load, and a limiter would make them look slow.
	config.QPS, config.RateLimiter = -1, nil
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the kubeconfig: %w", err)
	}
	client.Timeout = 0 // each question has a deadline of its own
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, rest.IsConfigTransportTLS(*config))
	if err != nil {
		return nil, fmt.Errorf("server of the kubeconfig: %w", err)
	}
	return &api{client: client, base: base, timeout: timeout}, nil
}

// answer is what came back, or err when nothing did.
type answer struct {
	code   int
	header http.Header
	body   []byte
	err    error
	took   time.Duration // until the headers came, 0 if it was not measured
}

// ask makes one request and reads its answer. path may have a query.
func (a *api) ask(ctx context.Context, method, path, accept string, body []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	resp, err := a.open(ctx, method, path, accept, body)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// read reads an answer to its end.
func read(resp *http.Response) answer {
	defer func() { _ = resp.Body.Close() }()
	out := answer{code: resp.StatusCode, header: resp.Header}
	var err error
	if out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody)); err != nil {
		out.err = fmt.Errorf("read the answer: %w", err)
	}
	return out
}

// askAs reads as somebody else, for whoever may impersonate.
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

// open makes one request; its body ends with ctx.
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
	return a.ask(ctx, http.MethodGet, path, mediaJSON, nil).decode(into)
}

// create makes an object, for those that are questions.
func (a *api) create(ctx context.Context, path string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return a.ask(ctx, http.MethodPost, path, mediaJSON, body).decode(into)
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

// status is the Status in the body, nil when it holds none.
func (r answer) status() *metav1.Status {
	var s metav1.Status
	if json.Unmarshal(r.body, &s) != nil || s.Kind != "Status" {
		return nil
	}
	return &s
}

// text is what the answer says, whatever its form.
func (r answer) text() string {
	switch s := r.status(); {
	case r.err != nil:
		return r.err.Error()
	case s != nil:
		return s.Message
	}
	return string(r.body)
}
