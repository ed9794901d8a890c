package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxAnswer bounds the size of a response that is read. It suffices for some ten thousand APIServices.
const maxAnswer = 32 << 20

// cluster is a client of the API server. It sends only GET requests.
type cluster struct {
	client  *http.Client
	base    *url.URL
	timeout time.Duration
}

func newCluster(config *rest.Config, timeout time.Duration) (*cluster, error) {
	if config == nil {
		return nil, errors.New("the console needs a client's configuration")
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, rest.IsConfigTransportTLS(*config))
	if err != nil {
		return nil, fmt.Errorf("server of the kubeconfig: %w", err)
	}
	own := *shared // client-go shares one client between equal configurations
	own.Timeout = 0
	// Do not follow redirects: credentials must stay with the configured server.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &cluster{client: &own, base: base, timeout: timeout}, nil
}

// answerError is a response with an error status.
type answerError struct {
	code    int
	message string
}

func (e *answerError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("the API server answers %d", e.code)
	}
	return e.message
}

// codeOf returns the HTTP status of an error, 0 if there was no response.
func codeOf(err error) int {
	var e *answerError
	if errors.As(err, &e) {
		return e.code
	}
	return 0
}

// read sends a GET request and passes the body of a successful response to use.
func (c *cluster) read(ctx context.Context, path string, query url.Values, use func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json, */*;q=0.1")
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a partial body is still useful
		var s metav1.Status
		if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
			s.Message = ""
		}
		return &answerError{resp.StatusCode, s.Message}
	}
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer + 1}
	if err := use(limited); err != nil {
		if limited.N == 0 {
			return fmt.Errorf("GET %s: the answer is larger than %d MiB", path, maxAnswer>>20)
		}
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// get decodes a JSON response.
func (c *cluster) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.read(ctx, path, query, func(body io.Reader) error {
		if err := json.NewDecoder(body).Decode(into); err != nil {
			return fmt.Errorf("decode the answer: %w", err)
		}
		return nil
	})
}

// fromCache returns a query that permits the API server to answer a list from its watch cache.
func fromCache() url.Values { return url.Values{"resourceVersion": {"0"}} }
