package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
)

// Config configures a Doctor.
type Config struct {
	// Client is the client configuration for the API server.
	Client *rest.Config
	// Timeout bounds each request to the API server. Default 10 s: twice the discovery timeout of a backend.
	Timeout time.Duration
	// DialTimeout bounds each connection attempt from this machine. Default 2 s, like the front door's.
	DialTimeout time.Duration
	// WatchTimeout bounds the wait for a watch's bookmark. Default 5 s.
	WatchTimeout time.Duration
	// FrontProxy, if set, is the front proxy's client certificate. Requests from this machine to extension servers
	// then authenticate like the API server's requests.
	FrontProxy *pki.KeyPair

	// checkTimeout is the timeout of an API server's backend check. Only tests change it.
	checkTimeout time.Duration
}

const (
	defaultTimeout      = 10 * time.Second
	defaultDialTimeout  = 2 * time.Second
	defaultWatchTimeout = 5 * time.Second
	// maxAtOnce bounds the number of APIServices that are examined concurrently.
	maxAtOnce = 8
)

// Doctor examines the APIServices of one API server.
type Doctor struct {
	cfg Config
	api *api
}

// New checks the configuration. It does no I/O.
func New(cfg Config) (*Doctor, error) {
	for field, value := range map[*time.Duration]time.Duration{
		&cfg.Timeout: defaultTimeout, &cfg.DialTimeout: defaultDialTimeout, &cfg.WatchTimeout: defaultWatchTimeout, &cfg.checkTimeout: apiservice.ProbeTimeout,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	a, err := newAPI(cfg.Client, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	return &Doctor{cfg: cfg, api: a}, nil
}

// Close closes idle connections to the API server.
func (d *Doctor) Close() { d.api.client.CloseIdleConnections() }

// Examine examines one APIService. It returns an error if the API server is unreachable or has no such APIService.
func (d *Doctor) Examine(ctx context.Context, name string) (*Report, error) {
	var object apiregistrationv1.APIService
	if err := d.api.get(ctx, apiServicesPath+"/"+url.PathEscape(name), &object); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no APIService %s: `kubectl get apiservices` lists them: %w", name, err)
		}
		return nil, fmt.Errorf("get apiservice %s from %s: %w", name, d.api.base.Host, err)
	}
	return d.examine(ctx, &object, d.isPortico(ctx)), nil
}

// ExamineAll examines every APIService that has an extension server, sorted by name.
func (d *Doctor) ExamineAll(ctx context.Context) ([]*Report, error) {
	var list apiregistrationv1.APIServiceList
	if err := d.api.get(ctx, apiServicesPath, &list); err != nil {
		return nil, fmt.Errorf("list apiservices from %s: %w", d.api.base.Host, err)
	}
	remote := slices.DeleteFunc(list.Items, func(o apiregistrationv1.APIService) bool { return o.Spec.Service == nil })
	slices.SortFunc(remote, func(a, b apiregistrationv1.APIService) int { return strings.Compare(a.Name, b.Name) })
	portico := d.isPortico(ctx)
	reports := make([]*Report, len(remote))
	slots := make(chan struct{}, maxAtOnce)
	var wg sync.WaitGroup
	for i := range remote {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			reports[i] = d.examine(ctx, &remote[i], portico)
		})
	}
	wg.Wait()
	return reports, ctx.Err()
}

// isPortico reports whether the API server belongs to this project and thus supports our annotations.
func (d *Doctor) isPortico(ctx context.Context) bool {
	a := d.api.send(ctx, http.MethodGet, "/version", mediaJSON, nil)
	var info apiversion.Info
	return a.err == nil && json.Unmarshal(a.body, &info) == nil && strings.Contains(info.GitVersion, "+portico-")
}

// Broken returns the number of reports with a failed hop.
func Broken(reports []*Report) int {
	n := 0
	for _, r := range reports {
		if r.Broken != nil {
			n++
		}
	}
	return n
}
