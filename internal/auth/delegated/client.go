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

	"portico.dev/internal/apiclient"
)

const (
	// askTimeout bounds one question to the front door, retries included. A request is waiting for the answer.
	askTimeout = 10 * time.Second
	// maxAnswerBytes bounds an answer; the largest is a ConfigMap (attack row A27).
	maxAnswerBytes = 3 << 20

	attempts     = 5
	firstBackoff = 500 * time.Millisecond
)

// apiClient is the front door as an extension server reaches it: its errors are those of client-go, and what may be better
// a moment later is asked again.
type apiClient struct{ client *apiclient.Client }

func newAPIClient(cfg *rest.Config) (*apiClient, error) {
	if cfg == nil {
		return nil, errors.New("delegated authentication needs a client of the front door; pass a kubeconfig")
	}
	own := rest.CopyConfig(cfg)
	own.DisableCompression = true // nothing that is read here is large, unless it is a bomb
	own.Timeout = 0               // each question has its own; watches last longer
	client, err := apiclient.New(own)
	if err != nil {
		return nil, err
	}
	return &apiClient{client}, nil
}

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
	data, err := f.client.Do(ctx, request(method, path, query, body))
	if err != nil {
		return statusError(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// stream returns a successful response, whose body the caller closes.
func (f *apiClient) stream(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	response, err := f.client.Stream(ctx, request(http.MethodGet, path, query, nil))
	return response, statusError(err)
}

func request(method, path string, query url.Values, body []byte) apiclient.Request {
	return apiclient.Request{Method: method, Path: path, Query: query, Accept: "application/json, */*", Body: body, MaxBytes: maxAnswerBytes}
}

// statusError is err as client-go would return it.
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
