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

// Config says what to examine: an APIService through an API server, or a server by its URL.
type Config struct {
	// Client reaches an API server. Required with APIService, and with Rotate.
	Client *rest.Config
	// APIService is the name of one. Empty: Server is asked.
	APIService string
	// Server is asked directly when APIService is empty.
	Server *Server
	// GroupVersions are which of Server's are examined. None: all that it lists.
	GroupVersions []schema.GroupVersion
	// Only are the checks to run, by topic or by "<topic>/<check>". None: all.
	Only []string
	// Timeout bounds each answer, and beyond its own time each watch. Default 10 s.
	Timeout time.Duration
	// Write lets checks create and delete an object of resources that can be created and deleted.
	Write bool
	// Rotate lets a check publish another front-proxy authority for up to RotateTimeout, and take it back.
	Rotate bool
	// RotateTimeout is how long a server may take to notice. Default 2 min: libraries look once a minute.
	RotateTimeout time.Duration
}

// parallel is how many checks ask at once: few enough for a server that serves others meanwhile.
const parallel = 4

// Examiner examines what its Config says.
type Examiner struct {
	cfg   Config
	front *caller // the API server; nil without one
	// closers let go of connections.
	closers []func()
}

// New reads c. It does no I/O.
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

// Close closes connections that are kept for the next question.
func (e *Examiner) Close() {
	if e.front != nil {
		e.front.client.CloseIdleConnections()
	}
	for _, c := range e.closers {
		c()
	}
}

// Run examines. An error means that nothing could be: the server cannot be reached or there is no such APIService.
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

// card runs every check.
func (x *examination) card(ctx context.Context) (*Report, error) {
	if err := x.discover(ctx); err != nil {
		return nil, err
	}
	all := chosen(x.cfg.Only)
	card := &Report{GroupVersion: x.gv.String(), Server: x.ask.base.String(), Results: make([]Result, len(all))}
	turns := make(chan struct{}, parallel)
	var running sync.WaitGroup
	// Checks that change things come after those that look, so that nobody sees a list change for their sake.
	for _, changing := range []bool{false, true} {
		for i, c := range all {
			if c.changes != changing {
				continue
			}
			turns <- struct{}{}
			running.Go(func() {
				defer func() { <-turns }()
				v := c.run(ctx, x)
				card.Results[i] = Result{ID: c.id, Expected: c.expected, Why: c.why, Outcome: v.outcome, Detail: v.detail}
			})
		}
		running.Wait()
	}
	return card, ctx.Err()
}

// check is one line to be.
type check struct {
	id, expected, why string
	run               func(context.Context, *examination) verdict
	// changes is set for checks that do more than read.
	changes bool
}

// checks are all, in the order in which they are printed.
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

// chosen are the checks that somebody wants.
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
