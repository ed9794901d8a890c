// Package httpclient reaches the servers that sources read: TLS from files, tokens from files, bounded answers.
//
// Files are read again while the program runs, so that a certificate, a CA or a token that is rotated is used without
// a restart. Redirects are never followed: a token goes to the server it was given for and to no other.
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
	// maxTokenBytes bounds a token file: a header cannot carry more.
	maxTokenBytes = 64 << 10
	// headerTimeout is how long a server may think before it answers anything, when the request has no nearer deadline.
	headerTimeout = time.Minute
)

// ErrTooLarge is what an answer beyond the limit is.
var ErrTooLarge = errors.New("answer is too large")

// Config makes a Client. All of it is optional.
type Config struct {
	TLS
	// BearerToken is sent with every request. BearerTokenFile is read anew for every request and wins.
	BearerToken, BearerTokenFile string
	// Username and Password are sent as basic authentication when there is no token.
	Username, Password string
	// Header is sent with every request, such as X-Scope-OrgID.
	Header http.Header
	// Wrap adds further credentials. Default: none.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client makes requests with the credentials of its Config. Safe for concurrent use.
type Client struct {
	config Config
	pool   *pool
}

// Answer is what a server said, read whole.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// New makes a client. It reads the files that c names, so that a wrong one is told at once.
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

// Fetch makes one request and reads at most limit bytes of the answer; a longer answer is an error for which
// ErrTooLarge holds. Any status is an Answer. r must carry a deadline in its context.
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

// Get fetches one address. accept may be empty.
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

// Close lets go of idle connections.
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
