package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	manifests "portico.dev/deploy/front"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// reviewClient sends reviews to a cluster, as the front door itself.
type reviewClient struct {
	cluster http.RoundTripper
	mode    v1alpha1.IdentityMode
	clients transport.Shares // the reviews in progress
}

const (
	// timeout limits a review.
	timeout = 10 * time.Second
	// maxResponse limits a response. A TokenReview contains the token and the groups of its user.
	maxResponse = 1 << 20
	// maxReviews limits the reviews in progress. A client network gets a share of them, so that requests of one client do not delay
	// those of others.
	maxReviews = 64
)

var errBusy = errors.New("too many requests wait for a review by the cluster")

// newReviewClient returns a reviewClient. cluster is like that of NewTokens.
func newReviewClient(cluster http.RoundTripper, mode v1alpha1.IdentityMode) *reviewClient {
	return &reviewClient{cluster: cluster, mode: mode}
}

// create posts a review and decodes the response into reply.
func (r *reviewClient) create(ctx context.Context, path string, review, reply any) error {
	client := request.ClientNetwork(ctx)
	if ok, _ := r.clients.Take(client, 1, maxReviews); !ok {
		return errBusy
	}
	defer r.clients.Give(client, 1)
	header := http.Header{}
	if r.mode == v1alpha1.FrontProxy {
		if err := WriteOwn(header); err != nil {
			return err
		}
	}
	return r.createAs(ctx, header, path, review, reply)
}

// createAs posts a review with the identity in a header and decodes the response into reply.
func (r *reviewClient) createAs(ctx context.Context, header http.Header, path string, review, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	header.Set("Accept", "application/json")
	header.Set("Content-Type", "application/json")
	code, data, err := r.post(ctx, header, path, body)
	if err != nil && ctx.Err() == nil {
		// The API server that had the review may have been killed. A review changes nothing, so it may be repeated.
		code, data, err = r.post(ctx, header, path, body)
	}
	switch {
	case err != nil:
		return err
	case len(data) > maxResponse:
		return fmt.Errorf("the response of the cluster is larger than %d bytes", maxResponse)
	case code/100 != 2:
		return refusal(code, path, data)
	}
	if err := json.Unmarshal(data, reply); err != nil {
		return fmt.Errorf("decode the response of the cluster: %w", err)
	}
	return nil
}

// post returns the code and the body of a response, which may be one byte too long.
func (r *reviewClient) post(ctx context.Context, header http.Header, path string, body []byte) (int, []byte, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://cluster"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	out.Header = header.Clone()
	resp, err := r.cluster.RoundTrip(out)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read the response of the cluster: %w", err)
	}
	return resp.StatusCode, data, nil
}

// refusal returns the error for a response that is not successful.
func refusal(code int, path string, body []byte) error {
	status := metav1.Status{}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(code)
	}
	status.Status, status.Code = metav1.StatusFailure, int32(code)
	status.Message = fmt.Sprintf("the cluster answers POST %s with %d: %s", path, code, status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}

// WriteOwn writes the identity of the front door itself into the header of a request in mode FrontProxy. API servers authenticate no
// request of a front proxy without a user.
func WriteOwn(header http.Header) error {
	groups := append(serviceaccount.MakeGroupNames(manifests.Namespace), user.AllAuthenticated)
	name := serviceaccount.MakeUsername(manifests.Namespace, manifests.Account)
	return proxy.WriteIdentity(header, proxy.RequestHeaders, &user.DefaultInfo{Name: name, Groups: groups})
}
