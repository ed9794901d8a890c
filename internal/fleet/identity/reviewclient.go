package identity

import (
	"context"
	"errors"
	"net/http"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// reviewClient sends reviews to a cluster.
type reviewClient struct {
	api     api
	clients transport.Shares // the reviews in progress
}

// maxReviews limits the reviews in progress. A client network gets a share of them, so that requests of one client do not delay
// those of others.
const maxReviews = 64

var errBusy = errors.New("too many requests wait for a review by the cluster")

// newReviewClient returns a reviewClient. cluster is like that of NewTokens.
func newReviewClient(cluster http.RoundTripper, mode v1alpha1.IdentityMode) *reviewClient {
	return &reviewClient{api: api{cluster, mode}}
}

// create posts a review and decodes the response into reply.
func (r *reviewClient) create(ctx context.Context, path string, review, reply any) error {
	client := request.ClientNetwork(ctx)
	if ok, _ := r.clients.Take(client, 1, maxReviews); !ok {
		return errBusy
	}
	defer r.clients.Give(client, 1)
	return r.api.create(ctx, path, review, reply)
}
