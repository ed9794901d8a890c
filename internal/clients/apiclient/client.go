// Package apiclient is a small client of a Kubernetes API for extension servers: JSON over HTTP with the credentials of a
// kubeconfig, bounded responses, and no redirects.
//
// An extension server needs few requests: reviews, a ConfigMap, lists of Nodes and Pods, and its registration. client-go's
// clientset would link every kind of every group. Every unsuccessful response is returned as an *Error. Deliberately, this is
// not an error of k8s.io/apimachinery/pkg/api/errors, so that a missing permission of the extension server is never reported to
// its caller as a missing permission of the caller.
package apiclient

import (
	"bytes"
	"cmp"
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
	// timeout bounds Get, Create and Delete unless the caller's context ends sooner.
	timeout = 15 * time.Second
	// maxBytes bounds a response: the metadata of about ten thousand objects.
	maxBytes = 64 << 20
)

// MetadataList is the Accept header that requests only the metadata of listed objects.
const MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Client sends requests to one API server. It is safe for concurrent use.
type Client struct {
	http *http.Client
	base *url.URL
}

// New returns a client. It does no I/O except reading the files named in config.
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
	own := *shared // client-go shares clients between callers with the same configuration
	// Send credentials only to the server in the kubeconfig (attack row A6).
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &own, base: base}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Request is one request. Path is relative to the server URL of the kubeconfig.
type Request struct {
	Method, Path string
	Query        url.Values
	// Accept and ContentType default to application/json, ContentType only with a Body.
	Accept, ContentType string
	Body                []byte
	// MaxBytes bounds the response of Do. Default 64 MiB.
	MaxBytes int64
}

// Stream sends r and returns a successful response. The caller must close its body. The request is bounded only by ctx.
func (c *Client) Stream(ctx context.Context, r Request) (*http.Response, error) {
	u := c.base.JoinPath(r.Path)
	u.RawQuery = r.Query.Encode()
	request, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		request.Header.Set("Accept", r.Accept)
	}
	if r.ContentType != "" {
		request.Header.Set("Content-Type", r.ContentType)
	} else if len(r.Body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, responseError(r, response)
}

// Do sends r and returns the body of a successful response.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	response, err := c.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	limit := cmp.Or(r.MaxBytes, maxBytes)
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the front door's answer is larger than %d bytes", limit)
	}
	return body, nil
}

// Get decodes the object at path into out. accept may be empty.
func (c *Client) Get(ctx context.Context, path string, query url.Values, accept string, out any) error {
	return c.decode(ctx, Request{Method: http.MethodGet, Path: path, Query: query, Accept: accept}, out)
}

// Create posts in to path and decodes the created object into out.
func (c *Client) Create(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	return c.decode(ctx, Request{Method: http.MethodPost, Path: path, Body: body}, out)
}

// Delete deletes the object at path.
func (c *Client) Delete(ctx context.Context, path string, options metav1.DeleteOptions) error {
	options.APIVersion, options.Kind = "v1", "DeleteOptions"
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	return c.decode(ctx, Request{Method: http.MethodDelete, Path: path, Body: body}, nil)
}

func (c *Client) decode(ctx context.Context, r Request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := c.Do(ctx, r)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}
