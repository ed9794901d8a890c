package simulation

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ruleSpace exists because an operator frees space by reading and deleting, and because requests for backends need no etcd.
const ruleSpace = "while etcd is full, writes fail with 507 and this reason, and nothing else fails"

// etcdSpace is the name under which the faults of etcd's space are recorded. They disturb writes only.
const etcdSpace = "etcd-space"

// fullEtcds raise the alarm of an etcd that has used up its quota. etcd-full-long lasts until a front door that starts meanwhile
// must serve.
func fullEtcds() []action {
	return []action{
		{name: "etcd-full", weight: 2, begin: func(h *history, _ step) { h.fill(true) }, end: func(h *history, _ step) { h.fill(false) }},
		{name: "etcd-full-long", weight: 1, begin: stayFull, end: func(*history, step) {}},
	}
}

// fill raises or disarms the alarm.
func (h *history) fill(full bool) {
	if full && h.etcd.server == nil {
		return
	}
	h.disturb(etcdSpace)
	h.check(h.etcd.setFull(h.world.ctx, full))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fullSince = (time.Time{}); full {
		h.fullSince = time.Now()
	}
}

// setFull raises or disarms the alarm of a full etcd. A server that does not run disarms it in its next start.
func (e *etcd) setFull(ctx context.Context, full bool) error {
	e.full = full
	if e.server == nil {
		return nil
	}
	r := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: uint64(e.server.MemberID())}
	if full {
		r.Action = pb.AlarmRequest_ACTIVATE
	}
	_, err := e.server.Alarm(ctx, r)
	return err
}

// isFullSince reports whether etcd has been full without a pause since a moment.
func (h *history) isFullSince(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.fullSince.IsZero() && h.fullSince.Before(at)
}

// isWrite reports whether a full etcd refuses the request.
func (a *answer) isWrite() bool {
	return strings.HasPrefix(a.request, http.MethodPost+" ") || strings.HasPrefix(a.request, http.MethodPut+" ")
}

// checkRefused checks the answer to a write that could only fail because etcd is full.
func (a *answer) checkRefused() error {
	if a.err != nil || a.status != http.StatusInsufficientStorage || !strings.Contains(string(a.body), "etcd is full") {
		return fmt.Errorf("%s: got %d %.300s (%v), want 507 with \"etcd is full\"", a.request, a.status, a.body, a.err)
	}
	return nil
}

// stayFull keeps etcd full for a while, in which a front door may restart, and checks what each front door serves.
func stayFull(h *history, s step) {
	if h.etcd.server == nil {
		return
	}
	h.fill(true)
	if f := h.front(s.target); s.choice%2 == 0 && f.server != nil {
		h.cut(f.name)
		began := time.Now()
		h.check(f.stop())
		h.postpone(time.Since(began)) // upgraded connections may use the grace period
		h.check(f.launch(h.world.ctx))
	}
	began := time.Now()
	h.postpone(holdTime)
	time.Sleep(holdTime)
	err := h.await(agreeWithin, func() error {
		ctx, cancel := context.WithTimeout(h.ctx, 2*requestTimeout)
		defer cancel()
		return h.checkFull(ctx)
	})
	if err != nil && h.ctx.Err() == nil {
		h.violate(ruleSpace, "%v, %s after etcd was full", err, time.Since(began))
	}
	h.postpone(time.Since(began) - holdTime)
	h.fill(false)
}

// checkFull returns an error while a front door that reaches etcd does not serve everything except writes.
func (h *history) checkFull(ctx context.Context) error {
	fronts, _ := h.steadyFronts()
	for _, f := range fronts {
		if err := f.exited(); err != nil {
			return err
		}
		if err := h.checkReadOnly(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (h *history) checkReadOnly(ctx context.Context, f *front) error {
	c := h.client(admin, f)
	ready := c.do(ctx, http.MethodGet, "/readyz", nil)
	if failed := failedChecks(ready); ready.err != nil || ready.ok() || failed != "etcd-space" {
		return fmt.Errorf("GET /readyz: got %d and the failed checks %q (%v), want a failure of etcd-space", ready.status, failed, ready.err)
	}
	for _, path := range []string{"/livez", "/api/v1/namespaces/" + backendNamespace, "/apis", "/openapi/v3"} {
		if err := c.do(ctx, http.MethodGet, path, nil).failure(); err != nil {
			return err
		}
	}
	for _, b := range h.backends {
		if !h.healthyTo(f, b) {
			continue
		}
		if err := h.ask(ctx, f, b).failure(); err != nil {
			return err
		}
	}
	refused := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
	return c.do(ctx, http.MethodPost, "/api/v1/namespaces/"+sharedNamespace+"/configmaps", refused).checkRefused()
}

// failedChecks returns the names of the failed checks in an answer of /readyz.
func failedChecks(a *answer) string {
	var failed []string
	for line := range strings.SplitSeq(string(a.body), "\n") {
		if name, isFailure := strings.CutPrefix(line, "[-]"); isFailure {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	return strings.Join(failed, ",")
}
