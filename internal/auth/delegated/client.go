package delegated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"portico.dev/internal/clients/apiclient"
)

const (
	// askTimeout limits one API call to the front door, including retries. A client's request waits for the result.
	askTimeout = 10 * time.Second
	// maxAnswerBytes limits the size of a response. The largest is a ConfigMap (attack row A27).
	maxAnswerBytes = 3 << 20

	attempts     = 5
	firstBackoff = 500 * time.Millisecond
)

// apiClient is an extension server's client of the front door. It returns the errors that client-go would return, and
// retries transient failures.
type apiClient struct{ client *apiclient.Client }

func newAPIClient(cfg *rest.Config) (*apiClient, error) {
	if cfg == nil {
		return nil, errors.New("delegated authentication needs a client of the front door; pass a kubeconfig")
	}
	own := rest.CopyConfig(cfg)
	own.DisableCompression = true // responses are small; a large compressed one would be an attack
	own.Timeout = 0               // each call has its own timeout; watches last longer
	client, err := apiclient.New(own)
	if err != nil {
		return nil, err
	}
	return &apiClient{client}, nil
}

// call sends in, unless it is nil, and decodes the response into out. It retries transient failures, because reviews
// and reads are safe to repeat.
func (f *apiClient) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
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
			return err // more specific than the deadline error
		}
		backoff += backoff / 2
	}
}

func (f *apiClient) once(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	data, err := f.client.Do(ctx, request(method, path, query, body))
	if err != nil {
		return statusError(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// stream returns a successful response. The caller must close its body.
func (f *apiClient) stream(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	response, err := f.client.Stream(ctx, request(http.MethodGet, path, query, nil))
	return response, statusError(err)
}

func request(method, path string, query url.Values, body []byte) apiclient.Request {
	return apiclient.Request{Method: method, Path: path, Query: query, Accept: "application/json, */*", Body: body, MaxBytes: maxAnswerBytes}
}

// statusError converts err to the error that client-go would return.
func statusError(err error) error {
	var refused *apiclient.Error
	if errors.As(err, &refused) {
		return refused.StatusError()
	}
	return err
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

// wait returns the delay that the front door requested, or else the backoff with jitter, so that replicas do not
// retry in step.
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
