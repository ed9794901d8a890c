package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// fetchTimeout is what upstream gives a backend for one document.
const fetchTimeout = 5 * time.Second

// aggregatorIdentity is who kube-aggregator asks as; extension servers are told to let it in.
var aggregatorIdentity = remote.Identity{User: "system:kube-aggregator", Groups: []string{"system:masters"}}

// answers are what one round heard: for each group-version its resources, or why there are none.
type answers map[schema.GroupVersion]answer

type answer struct {
	resources []apidiscoveryv2.APIResourceDiscovery
	err       error
}

// visit is what is remembered of a backend from one round to the next, so that the next may be a 304. It belongs to the
// backend's worker.
type visit struct {
	etag   string
	wanted []schema.GroupVersion
	found  map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery
}

// ask asks one backend for all the group-versions wanted from it: the aggregated document once, then the legacy one for
// each group-version that the aggregated document did not give. A group-version may well be missing from it: servers
// built on some released libraries serve it and do not list it.
func ask(ctx context.Context, f *remote.Fetcher, b remote.Backend, wanted []schema.GroupVersion, v *visit) answers {
	heard := answers{}
	err := v.aggregated(ctx, f, b, wanted)
	for _, gv := range wanted {
		var a answer
		switch resources, ok := v.found[gv]; {
		case err != nil:
			a.err = err
		case ok:
			a.resources = resources
		default:
			a.resources, a.err = legacy(ctx, f, b, gv)
		}
		if a.err == nil {
			a.err = check(a.resources)
		}
		heard[gv] = a
	}
	return heard
}

// aggregated brings v.found up to date. An error means that the backend cannot be talked to at all; a backend without
// aggregated discovery, or with nonsense in its place, is one that found nothing.
func (v *visit) aggregated(ctx context.Context, f *remote.Fetcher, b remote.Backend, wanted []schema.GroupVersion) error {
	etag := v.etag
	if !slices.Equal(wanted, v.wanted) {
		etag = ""
	}
	a, err := f.Fetch(ctx, b, remote.Request{
		Path:    "/apis",
		Accept:  "application/json;" + aggregatedParams,
		ETag:    etag,
		As:      aggregatorIdentity,
		Limit:   maxBody,
		Timeout: fetchTimeout,
	})
	switch {
	case errors.Is(err, remote.ErrTooLarge): // a smaller answer may be had for each group-version alone
	case err != nil:
		*v = visit{}
		return err
	case a.Code == http.StatusNotModified && etag != "":
		return nil
	case a.Code == http.StatusServiceUnavailable || a.Code == http.StatusTooManyRequests:
		*v = visit{}
		return fmt.Errorf("get /apis from %s: answered %d", b.Name(), a.Code)
	case a.Code == http.StatusOK && isAggregated(a.ContentType):
		if found, err := parseAggregated(a.Body, wanted); err == nil {
			*v = visit{etag: a.ETag, wanted: wanted, found: found}
			return nil
		}
	}
	*v = visit{}
	return nil
}

func legacy(ctx context.Context, f *remote.Fetcher, b remote.Backend, gv schema.GroupVersion) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	a, err := f.Fetch(ctx, b, remote.Request{
		Path:    pathOf(gv),
		Accept:  "application/json",
		As:      aggregatorIdentity,
		Limit:   maxBody,
		Timeout: fetchTimeout,
	})
	if err != nil {
		return nil, err
	}
	if a.Code != http.StatusOK {
		return nil, fmt.Errorf("get %s from %s: answered %d", pathOf(gv), b.Name(), a.Code)
	}
	return parseLegacy(a.Body, gv)
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}
