package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/respond"
)

// Closed returns a check that passes once ready is closed.
func Closed(name string, ready <-chan struct{}) Check {
	return Check{Name: name, Ask: func(context.Context) error { return NotClosed(ready) }}
}

// NotClosed returns an error until ready is closed.
func NotClosed(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
		return errNotReady
	}
}

var errNotReady = errors.New("not there yet")

// Check is one named question about the server's health.
type Check struct {
	// Name is what /readyz?verbose prints and ?exclude= names.
	Name string
	// Live also asks it for /livez: a failure there has the process restarted, by a kubelet for example. Leave it false for
	// whatever depends on something outside of the process, etcd included: a restart does not repair that, and all replicas
	// would be restarted at once.
	Live bool
	// Backend is set for a check that depends on an extension server. It belongs to /readyz/backends, and to /readyz only with
	// InReadyz; never to /livez or /healthz.
	Backend, InReadyz bool
	// Ask returns why not, or nil. It has a deadline of checkTimeout.
	Ask func(ctx context.Context) error
	// Note, if set, returns what a report says of the check when it passes; empty: nothing. Everybody can read it.
	Note func() string
	// Tolerate, if set, reports whether /readyz is to pass although Ask has failed. Requests for the check alone fail all the same.
	Tolerate func() bool
}

const checkTimeout = 2 * time.Second

// Health answers /livez, /readyz and /healthz. None of these depends on an extension server, unless a check says so by InReadyz.
// With checks that have Backend set there is also /readyz/backends, which asks these and all that /readyz asks.
type Health struct {
	checks   []Check
	results  *prometheus.Registry // what came of the checks, for /metrics/slis
	counts   *metrics.HealthChecks
	log      *zap.Logger
	stopping atomic.Bool
}

// Tolerated makes an error one that does not fail its check: the report says that it is tolerated, and the check passes. nil
// stays nil.
func Tolerated(err error) error {
	if err == nil {
		return nil
	}
	return &toleratedError{err}
}

type toleratedError struct{ err error }

func (e *toleratedError) Error() string { return e.err.Error() }
func (e *toleratedError) Unwrap() error { return e.err }

// backendsRoot is the endpoint below /readyz that asks the checks of extension servers too.
const backendsRoot = "readyz/backends"

// NewHealth answers with the given checks, in their order.
func NewHealth(log *zap.Logger, checks ...Check) *Health {
	results := prometheus.NewRegistry()
	h := &Health{results: results, counts: metrics.NewHealthChecks(results), log: logging.Limited(log)}
	h.checks = append([]Check{{Name: "ping", Live: true, Ask: func(context.Context) error { return nil }}}, checks...)
	h.checks = append(h.checks, Check{Name: "shutdown", Ask: func(context.Context) error {
		if h.stopping.Load() {
			return errors.New("the process is shutting down")
		}
		return nil
	}})
	return h
}

// Stopping makes readyz false from now on, so that load balancers look elsewhere.
func (h *Health) Stopping() { h.stopping.Store(true) }

// ServeHTTP serves /livez, /readyz and /healthz (which asks what /readyz asks), and one check each below them, such as
// /readyz/etcd; and /readyz/backends with those below it, if there are such checks.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	if root == "readyz" && slices.ContainsFunc(h.checks, func(c Check) bool { return c.Backend }) {
		if first, rest, _ := strings.Cut(name, "/"); first == "backends" {
			root, name = backendsRoot, rest
		}
	}
	checks := h.of(root)
	if name != "" {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			respond.Error(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: root + " checks"}, name))
			return
		}
		checks = checks[i : i+1]
	}
	h.answer(w, r, root, checks, name == "" && root == "readyz")
}

func (h *Health) of(root string) []Check {
	var out []Check
	for _, c := range h.checks {
		asked := true
		switch root {
		case "livez":
			asked = c.Live && !c.Backend
		case "readyz":
			asked = !c.Backend || c.InReadyz
		case "healthz":
			asked = !c.Backend
		}
		if asked {
			out = append(out, c)
		}
	}
	return out
}

// answer asks checks. whole is for /readyz, which tolerates more than a request for one check does.
func (h *Health) answer(w http.ResponseWriter, r *http.Request, root string, checks []Check, whole bool) {
	excluded := r.URL.Query()["exclude"]
	unknown := sets.New(excluded...)
	var report bytes.Buffer
	failed := false
	for _, c := range checks {
		unknown.Delete(c.Name)
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := h.ask(r.Context(), c)
		_, tolerated := errors.AsType[*toleratedError](err)
		h.counts.Count(c.Name, root, err != nil && !tolerated)
		if tolerated || err != nil && whole && c.Tolerate != nil && c.Tolerate() {
			fmt.Fprintf(&report, "[+]%s tolerated: ok\n", c.Name)
			continue
		}
		if err != nil {
			failed = true
			// Health is public, so the reason stays in the log.
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			h.log.Warn("health check failed", zap.String("endpoint", root), zap.String("check", c.Name), zap.Error(err))
			continue
		}
		if note := noteOf(c); note != "" {
			fmt.Fprintf(&report, "[+]%s ok: %s\n", c.Name, note)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	if unknown.Len() > 0 { // in kube-apiserver's words
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(sets.List(unknown)))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", report.String(), root)
	case r.URL.Query().Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", report.String(), root)
	default:
		_, _ = w.Write([]byte("ok"))
	}
}

func noteOf(c Check) string {
	if c.Note == nil {
		return ""
	}
	return c.Note()
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strconv.Quote(name)
	}
	return strings.Join(out, ",")
}

func (h *Health) ask(ctx context.Context, c Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.Ask(ctx)
}
