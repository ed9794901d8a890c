package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
	"portico.dev/internal/routetable"
)

// causes finds out why an APIService is unavailable: kube-apiserver's response says "service unavailable" and nothing else.
type causes struct {
	fetch fetcher
	asked singleflight.Group
}

func newCauses(fetch fetcher) *causes { return &causes{fetch: fetch} }

const (
	// causeTimeout limits the time by which a response is later because of its explanation.
	causeTimeout = 2 * time.Second
	// maxAPIService limits an APIService that is read. Its CA bundle may be large.
	maxAPIService = 1 << 20
)

// explain returns the response for a request that the API server has answered with 503, or nil if its APIService is not
// unavailable, or its user may not read it.
func (c *causes) explain(who identity, r *filters.Request) error {
	parts := strings.SplitN(r.URL.Path, "/", 5) // "", apis, group, version, rest
	if len(parts) < 4 || parts[1] != "apis" || parts[2] == "" || parts[3] == "" {
		return nil
	}
	name := parts[3] + "." + parts[2]
	found, err, _ := c.asked.Do(name+"\n"+who.key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), causeTimeout)
		defer cancel()
		return c.condition(ctx, name, who)
	})
	if err != nil {
		return nil // the response without a cause is better than none
	}
	condition, ok := found.(apiregistrationv1.APIServiceCondition)
	if !ok || condition.Status == apiregistrationv1.ConditionTrue {
		return nil
	}
	return dispatch.UnavailableStatus(&routetable.Route{Name: name, Condition: condition}, r.AuditID)
}

// condition returns the condition Available of an APIService, or nil.
func (c *causes) condition(ctx context.Context, name string, who identity) (any, error) {
	resp, err := c.fetch(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+name, "", http.Header{"Accept": {"application/json"}}, who)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	var found apiregistrationv1.APIService
	if resp.StatusCode != http.StatusOK {
		return nil, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAPIService)).Decode(&found); err != nil {
		return nil, err
	}
	for _, condition := range found.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition, nil
		}
	}
	return nil, nil
}
