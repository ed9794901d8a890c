package delegated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// askTimeout bounds one question to the front door, retries included. A request is waiting for the answer.
	askTimeout = 10 * time.Second
	// maxAnswerBytes bounds an answer; the largest is a ConfigMap (attack row A27).
	maxAnswerBytes  = 3 << 20
	maxRefusalBytes = 64 << 10
	maxQuotedBytes  = 1 << 10 // of a refusal that is no Status

	attempts     = 5
	firstBackoff = 500 * time.Millisecond
)

// apiClient is a client of the front door: plain HTTP and JSON.
type apiClient struct {
	client *http.Client
	base   *url.URL
}

func newAPIClient(cfg *rest.Config) (*apiClient, error) {
	if cfg == nil {
		return nil, errors.New("delegated authentication needs a client of the front door; pass a kubeconfig")
	}
	own := rest.CopyConfig(cfg)
	own.DisableCompression = true // nothing that is read here is large, unless it is a bomb
	own.Timeout = 0               // each question has its own; watches last longer
	shared, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return nil, fmt.Errorf("address of the front door: %w", err)
	}
	client := *shared
	// Credentials go where the kubeconfig says and nowhere else (attack row A6).
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &apiClient{client: &client, base: base}, nil
}

func (f *apiClient) close() { utilnet.CloseIdleConnectionsFor(f.client.Transport) }

// ask sends in, if there is one, and decodes the answer into out, retrying what may be better a moment later. Both
// reviews and reads are safe to repeat.
func (f *apiClient) ask(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode question: %w", err)
		}
	}
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		err := f.once(ctx, method, path, query, body, out)
		if err == nil || attempt == attempts || !retriable(err) {
			return err
		}
		if pause(ctx, wait(err, backoff)) != nil {
			return err // the last answer says more than the deadline does
		}
		backoff += backoff / 2
	}
}

func (f *apiClient) once(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	response, err := f.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case len(data) > maxAnswerBytes:
		return fmt.Errorf("the answer is larger than %d bytes", maxAnswerBytes)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// send returns a successful response, whose body the caller closes.
func (f *apiClient) send(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	u := f.base.JoinPath(path)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, failure(response, path)
}

// failure is a response as an API error, whatever its body is.
func failure(response *http.Response, path string) error {
	data, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes)) // what could be read is what there is to say
	status := metav1.Status{}
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" && status.Code != 0 {
		return &apierrors.StatusError{ErrStatus: status}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // a date or nonsense counts as none
	return apierrors.NewGenericServerResponse(response.StatusCode, response.Request.Method,
		schema.GroupResource{Resource: path}, "", string(data[:min(len(data), maxQuotedBytes)]), seconds, true)
}

func retriable(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) {
		return true
	}
	if apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, asked := apierrors.SuggestsClientDelay(err)
	return asked
}

// wait is the backoff, spread so that replicas do not come back in step, or what the front door asked for.
func wait(err error, backoff time.Duration) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return backoff + rand.N(backoff/5)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
