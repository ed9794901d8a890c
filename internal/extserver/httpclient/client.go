// Package httpclient is an HTTP client for data sources, with TLS settings and tokens from files and limits for responses.
//
// Files are read again at run time, so that rotated certificates, CAs and tokens are used without a restart. Redirects are
// never followed, so that a token is only sent to its intended server.
package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// maxTokenBytes limits the size of a token file. A header cannot contain more.
	maxTokenBytes = 64 << 10
	// headerTimeout limits the wait for response headers if the request has no earlier deadline.
	headerTimeout = time.Minute
)

// ErrTooLarge is returned for a response that exceeds its limit.
var ErrTooLarge = errors.New("answer is too large")

// Config configures a Client. All fields are optional.
type Config struct {
	TLS
	// BearerToken is sent with every request. BearerTokenFile is read for every request and takes precedence.
	BearerToken, BearerTokenFile string
	// Username and Password are sent as basic authentication if no token is set.
	Username, Password string
	// Header is added to every request, e.g. X-Scope-OrgID.
	Header http.Header
	// Wrap wraps the transport to add further credentials. Optional.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client sends requests with the credentials of its Config. It is safe for concurrent use.
type Client struct {
	config Config
	pool   *pool
}

// Answer is a response with its complete body.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// New returns a Client. It reads the files that c names, so that it reports invalid ones immediately.
func New(c Config) (*Client, error) {
	p, err := newPool(c.TLS, c.Wrap)
	if err != nil {
		return nil, err
	}
	client := &Client{config: c, pool: p}
	if _, err := client.token(); err != nil {
		return nil, err
	}
	return client, nil
}

// Fetch sends one request and reads up to limit bytes of the response. For a longer response, the error matches ErrTooLarge.
// A response with any status is an Answer. The context of r must have a deadline.
func (c *Client) Fetch(r *http.Request, limit int64) (*Answer, error) {
	if err := c.authenticate(r); err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Transport: c.pool.current(), CheckRedirect: noRedirects}).Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", r.URL.Host, err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", r.URL.Host, ErrTooLarge, limit)
	}
	return &Answer{Code: answer.StatusCode, Header: answer.Header, Body: body}, nil
}

// Get fetches a URL. accept may be empty.
func (c *Client) Get(ctx context.Context, address, accept string, limit int64) (*Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	return c.Fetch(r, limit)
}

// Close closes idle connections.
func (c *Client) Close() { c.pool.close() }

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *Client) authenticate(r *http.Request) error {
	for name, values := range c.config.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	token, err := c.token()
	switch {
	case err != nil:
		return err
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	case c.config.Username != "":
		r.SetBasicAuth(c.config.Username, c.config.Password)
	}
	return nil
}

func (c *Client) token() (string, error) {
	if c.config.BearerTokenFile == "" {
		return c.config.BearerToken, nil
	}
	f, err := os.Open(c.config.BearerTokenFile)
	if err != nil {
		return "", fmt.Errorf("bearer token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
	if err != nil {
		return "", fmt.Errorf("bearer token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("bearer token: %s is empty", c.config.BearerTokenFile)
	}
	return token, nil
}
