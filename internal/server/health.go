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

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"portico.dev/internal/respond"
)

// Check is one named question about the server's health.
type Check struct {
	// Name is what /readyz?verbose prints and ?exclude= names.
	Name string
	// Live also asks it for /livez: a failure there has the process restarted, by a kubelet for example. Leave it false for
	// whatever depends on something outside of the process, etcd included: a restart does not repair that, and all replicas
	// would be restarted at once.
	Live bool
	// Ask returns why not, or nil. It has a deadline of checkTimeout.
	Ask func(ctx context.Context) error
}

const checkTimeout = 2 * time.Second

// Health answers /livez, /readyz and /healthz. No check ever depends on an extension server.
type Health struct {
	checks   []Check
	log      *zap.Logger
	stopping atomic.Bool
}

// NewHealth answers with the given checks, in their order.
func NewHealth(log *zap.Logger, checks ...Check) *Health {
	h := &Health{log: log}
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
// /readyz/etcd.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	checks := h.of(root)
	if name != "" {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			respond.Error(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: root + " checks"}, name))
			return
		}
		checks = checks[i : i+1]
	}
	h.answer(w, r, root, checks)
}

func (h *Health) of(root string) []Check {
	var out []Check
	for _, c := range h.checks {
		if c.Live || root != "livez" {
			out = append(out, c)
		}
	}
	return out
}

func (h *Health) answer(w http.ResponseWriter, r *http.Request, root string, checks []Check) {
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
		if err := h.ask(r.Context(), c); err != nil {
			failed = true
			// Health is public, so the reason stays in the log.
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			h.log.Warn("health check failed", zap.String("endpoint", root), zap.String("check", c.Name), zap.Error(err))
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
