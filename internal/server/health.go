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
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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

// Check is one named health check.
type Check struct {
	// Name is printed by /readyz?verbose and matched by ?exclude=.
	Name string
	// Live adds the check to /livez, where a failure restarts the process, by a kubelet for example. Leave it false
	// for a check that depends on anything outside the process, including etcd: a restart does not repair that, and
	// all replicas would restart at once.
	Live bool
	// Backend marks a check that depends on an extension server. Such a check belongs to /readyz/backends, and to
	// /readyz only with InReadyz; never to /livez or /healthz.
	Backend, InReadyz bool
	// Ask returns the reason for a failure, or nil. Its context has a deadline of checkTimeout.
	Ask func(ctx context.Context) error
	// Note, if set, returns a remark that reports show when the check passes. It is public. Empty means no remark.
	Note func() string
	// Tolerate, if set, reports whether /readyz passes although Ask has failed. A request for the check alone still
	// fails.
	Tolerate func() bool
}

const checkTimeout = 2 * time.Second

// Health serves /livez, /readyz and /healthz. None of them depends on an extension server, unless a check has
// InReadyz set. If a check has Backend set, Health also serves /readyz/backends, which runs these checks and all
// checks in /readyz.
type Health struct {
	checks   []Check
	results  *prometheus.Registry // results of the checks, for /metrics/slis
	counts   *metrics.HealthChecks
	log      *zap.Logger
	stopping atomic.Bool

	mu       sync.Mutex                  // guards startups
	startups map[string]*logging.Startup // by check
}

// Tolerated wraps an error that does not fail its check: the check passes, and the report marks it as tolerated.
// Tolerated(nil) is nil.
func Tolerated(err error) error {
	if err == nil {
		return nil
	}
	return &toleratedError{err}
}

type toleratedError struct{ err error }

func (e *toleratedError) Error() string { return e.err.Error() }
func (e *toleratedError) Unwrap() error { return e.err }

// backendsRoot is the endpoint below /readyz that includes the checks of extension servers.
const backendsRoot = "readyz/backends"

// NewHealth returns a Health that runs the given checks in order.
func NewHealth(log *zap.Logger, checks ...Check) *Health {
	results := prometheus.NewRegistry()
	h := &Health{results: results, counts: metrics.NewHealthChecks(results), log: logging.Limited(log), startups: map[string]*logging.Startup{}}
	h.checks = append([]Check{{Name: "ping", Live: true, Ask: func(context.Context) error { return nil }}}, checks...)
	h.checks = append(h.checks, Check{Name: "shutdown", Ask: func(context.Context) error {
		if h.stopping.Load() {
			return errors.New("the process is shutting down")
		}
		return nil
	}})
	return h
}

// Stopping makes /readyz fail from now on, so that load balancers choose other servers.
func (h *Health) Stopping() { h.stopping.Store(true) }

// ServeHTTP serves /livez, /readyz, /healthz (the checks of /readyz without extension servers), and each check below
// them, such as /readyz/etcd. It also serves /readyz/backends and the checks below it, if such checks exist.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	if root == "readyz" && slices.ContainsFunc(h.checks, func(c Check) bool { return c.Backend }) {
		if first, rest, _ := strings.Cut(name, "/"); first == "backends" {
			root, name = backendsRoot, rest
		}
	}
	checks := h.checksOf(root)
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

func (h *Health) checksOf(root string) []Check {
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

// levelOf returns the level of a line about the result of a check. Load balancers and kubelets probe a process while it starts
// and stops, when failures are normal.
func (h *Health) levelOf(check string, err error) zapcore.Level {
	if h.stopping.Load() {
		return zapcore.InfoLevel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.startups[check]
	if s == nil {
		s = &logging.Startup{}
		h.startups[check] = s
	}
	if err == nil {
		s.Succeeded()
		return zapcore.InfoLevel
	}
	level, _ := s.Failed(time.Now())
	return level
}

// answer runs checks and writes a report. whole is true for /readyz, which tolerates more failures than a request for
// one check.
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
		err := h.runCheck(r.Context(), c)
		_, tolerated := errors.AsType[*toleratedError](err)
		h.counts.Count(c.Name, root, err != nil && !tolerated)
		if tolerated || err != nil && whole && c.Tolerate != nil && c.Tolerate() {
			fmt.Fprintf(&report, "[+]%s tolerated: ok\n", c.Name)
			continue
		}
		level := h.levelOf(c.Name, err)
		if err != nil {
			failed = true
			// Health endpoints are public, so only the log contains the reason.
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			h.log.Log(level, "health check failed", zap.String("endpoint", root), zap.String("check", c.Name), zap.Error(err))
			continue
		}
		if note := noteOf(c); note != "" {
			fmt.Fprintf(&report, "[+]%s ok: %s\n", c.Name, note)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	if unknown.Len() > 0 { // kube-apiserver's message
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

func (h *Health) runCheck(ctx context.Context, c Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.Ask(ctx)
}
