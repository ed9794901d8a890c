package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Config selects the server to examine: an APIService through an API server, or a server by its URL.
type Config struct {
	// Client is the client configuration of an API server. Required with APIService and with Rotate.
	Client *rest.Config
	// APIService is the name of the APIService to examine. If it is empty, Server is examined.
	APIService string
	// Server is examined directly if APIService is empty.
	Server *Server
	// GroupVersions lists the group-versions of Server to examine. Default: all that it lists.
	GroupVersions []schema.GroupVersion
	// Only lists the checks to run, as a topic or "<topic>/<check>". Default: all.
	Only []string
	// Timeout bounds each response. A watch may take its requested duration in addition. Default 10 s.
	Timeout time.Duration
	// Write permits checks to create and delete an object of resources that support both verbs.
	Write bool
	// Rotate permits a check to publish another front-proxy authority for up to RotateTimeout, and to remove it
	// again.
	Rotate bool
	// RotateTimeout bounds the time in which a server must detect the change. Default 2 min: libraries reload once a
	// minute.
	RotateTimeout time.Duration
}

// parallel is the number of concurrent checks. It is low because the server may be serving other clients.
const parallel = 4

// Examiner runs the checks selected by its Config.
type Examiner struct {
	cfg   Config
	front *caller // the API server; may be nil
	// closers close the connections to servers
	closers []func()
}

// New validates c. It does no I/O.
func New(c Config) (*Examiner, error) {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.RotateTimeout <= 0 {
		c.RotateTimeout = 2 * time.Minute
	}
	switch {
	case (c.APIService == "") == (c.Server == nil):
		return nil, errors.New("either an APIService or the URL of a server is examined")
	case len(chosen(c.Only)) == 0:
		return nil, fmt.Errorf("no check is called %q", c.Only)
	case (c.APIService != "" || c.Rotate) && c.Client == nil:
		return nil, errors.New("an API server is needed: give a kubeconfig")
	}
	e := &Examiner{cfg: c}
	if c.Client != nil {
		front, err := frontCaller(c.Client, c.Timeout)
		if err != nil {
			return nil, err
		}
		e.front = front
	}
	return e, nil
}

// Close closes idle connections.
func (e *Examiner) Close() {
	if e.front != nil {
		e.front.client.CloseIdleConnections()
	}
	for _, c := range e.closers {
		c()
	}
}

// Run runs the checks. It returns an error if the server is unreachable or the APIService does not exist.
func (e *Examiner) Run(ctx context.Context) ([]*Report, error) {
	if e.cfg.APIService != "" {
		x, err := e.throughFront(ctx)
		if err != nil {
			return nil, err
		}
		card, err := x.card(ctx)
		if err != nil {
			return nil, err
		}
		card.APIService = e.cfg.APIService
		return []*Report{card}, nil
	}
	server, err := e.cfg.Server.caller(e.cfg.Timeout)
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, server.client.CloseIdleConnections)
	gvs := e.cfg.GroupVersions
	if len(gvs) == 0 {
		if gvs, err = listed(ctx, server); err != nil {
			return nil, err
		}
	}
	var cards []*Report
	for _, gv := range gvs {
		x := &examination{cfg: e.cfg, gv: gv, ask: server, front: e.front, server: e.cfg.Server, directly: true}
		card, err := x.card(ctx)
		if err != nil {
			return nil, err
		}
		cards = append(cards, card)
	}
	return cards, nil
}

// card runs all selected checks.
func (x *examination) card(ctx context.Context) (*Report, error) {
	if err := x.discover(ctx); err != nil {
		return nil, err
	}
	all := chosen(x.cfg.Only)
	card := &Report{GroupVersion: x.gv.String(), Server: x.ask.base.String(), Results: make([]Result, len(all))}
	turns := make(chan struct{}, parallel)
	var running sync.WaitGroup
	// Checks that modify objects run after the read-only checks, so that lists do not change during the latter.
	for _, changing := range []bool{false, true} {
		for i, c := range all {
			if c.changes != changing {
				continue
			}
			turns <- struct{}{}
			running.Go(func() {
				defer func() { <-turns }()
				v := c.run(ctx, x)
				card.Results[i] = Result{ID: c.id, Expected: c.expected, Why: c.reason, Outcome: v.outcome, Detail: v.detail}
			})
		}
		running.Wait()
	}
	return card, ctx.Err()
}

// check is a check that results in one line of the report.
type check struct {
	id, expected, reason string
	run                  func(context.Context, *examination) verdict
	// changes is true for a check that modifies objects.
	changes bool
}

// checks returns all checks in the order of the report.
func checks() []check {
	var all []check
	for _, topic := range [][]check{
		discoveryChecks(), aggregatedChecks(), openAPIChecks(), objectChecks(), formChecks(), selectorChecks(), pagingChecks(),
		scopeChecks(), watchChecks(), initialChecks(), errorChecks(), trustChecks(), writeChecks(),
	} {
		all = append(all, topic...)
	}
	return all
}

// chosen returns the selected checks.
func chosen(only []string) []check {
	return slices.DeleteFunc(checks(), func(c check) bool {
		topic, _, _ := strings.Cut(c.id, "/")
		return len(only) > 0 && !slices.Contains(only, topic) && !slices.Contains(only, c.id)
	})
}

func listed(ctx context.Context, server *caller) ([]schema.GroupVersion, error) {
	var groups struct {
		Groups []struct {
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
		} `json:"groups"`
	}
	a := server.get(ctx, "/apis")
	if a.is(http.StatusUnauthorized) || a.is(http.StatusForbidden) {
		return nil, fmt.Errorf("%s: give the certificate of a front proxy that the server trusts, and a user who may look", a)
	}
	if err := a.into(&groups); err != nil {
		return nil, fmt.Errorf("find what the server has: %w; or name a group-version", err)
	}
	var gvs []schema.GroupVersion
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			gv, err := schema.ParseGroupVersion(v.GroupVersion)
			if err != nil {
				return nil, fmt.Errorf("find what the server has: /apis: %w", err)
			}
			gvs = append(gvs, gv)
		}
	}
	if len(gvs) == 0 {
		return nil, errors.New("the server lists no group-version at /apis; name one")
	}
	return gvs, nil
}
