// Package frontdoor asks the API behind which the extension server stands, as the server's own identity: JSON out,
// JSON in, every answer bounded.
//
// It is for providers whose answers depend on objects of the API. A refusal is a Refusal and not an error of
// k8s.io/apimachinery/pkg/api/errors: what the server may not do must never reach a caller as what they may not do.
package frontdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// timeout bounds one question when the caller's context does not end sooner.
	timeout = 15 * time.Second
	// MaxAnswer bounds an answer in bytes: the metadata of some ten thousand objects.
	MaxAnswer = 64 << 20
)

// MetadataList is the Accept header that asks for the metadata of listed objects and not for the rest of them.
const MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Client asks one front door. It is safe for concurrent use.
type Client struct {
	http *http.Client
	base *url.URL
}

// New makes a client. It does no I/O beyond the files that config names.
func New(config *rest.Config) (*Client, error) {
	if config == nil {
		return nil, errors.New("client of the front door: a kubeconfig is required")
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the front door: %w", err)
	}
	own := *shared // the library shares clients between those who ask with the same configuration
	// Credentials go where the kubeconfig says and nowhere else.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &own, base: base}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get fetches path into out. accept may be empty.
func (c *Client) Get(ctx context.Context, path string, query url.Values, accept string, out any) error {
	return c.do(ctx, http.MethodGet, path, query, accept, nil, out)
}

// Create posts in and reads what came of it into out.
func (c *Client) Create(ctx context.Context, path string, in, out any) error {
	return c.do(ctx, http.MethodPost, path, nil, "", in, out)
}

// Delete deletes what is at path.
func (c *Client) Delete(ctx context.Context, path string, options metav1.DeleteOptions) error {
	options.APIVersion, options.Kind = "v1", "DeleteOptions"
	return c.do(ctx, http.MethodDelete, path, nil, "", options, nil)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, accept string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	if accept == "" {
		accept = "application/json"
	}
	r.Header.Set("Accept", accept)
	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case len(body) > MaxAnswer:
		return fmt.Errorf("the front door's answer is larger than %d bytes", MaxAnswer)
	case answer.StatusCode/100 != 2:
		return refusal(method, path, answer.StatusCode, body)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	if in == nil {
		return http.NewRequestWithContext(ctx, method, u.String(), nil)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}
