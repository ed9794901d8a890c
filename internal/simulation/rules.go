package simulation

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// convergence bounds the time from the last fault to the state without faults, in virtual time.
const convergence = 2 * time.Minute

// condition is a condition that holds some time after the last fault, with its rule.
type condition struct {
	rule  string
	check func(*history, context.Context) error
}

// atRest are the conditions at the end of a history, in the order in which they are awaited.
var atRest = slices.Concat([]condition{
	{"every front door runs", (*history).checkFronts},
	{"every APIService is available", func(h *history, ctx context.Context) error { return h.checkAvailable(ctx) }},
	{"every front door serves the same documents", func(h *history, ctx context.Context) error { return h.checkDocuments(ctx) }},
}, watchesAtRest, registersAtRest, lifecycleAtRest, agreementAtRest, gatewaysAtRest, upgradesAtRest, idleAtRest)

// converge waits until the conditions hold.
func (h *history) converge() {
	if h.ctx.Err() != nil {
		return
	}
	began := time.Now()
	for _, c := range atRest {
		left := convergence - time.Since(began)
		if err := h.await(left, func() error {
			ctx, cancel := context.WithTimeout(h.ctx, 10*time.Second)
			defer cancel()
			err := c.check(h, ctx)
			if err != nil {
				clear(h.scrapes)
			}
			return err
		}); err != nil {
			h.violate(c.rule, "%s after the last fault: %v", time.Since(began), err)
			return
		}
	}
	h.log.addf("at rest %s after the last fault", time.Since(began))
}

// checkFronts returns an error while a front door does not run or is not ready.
func (h *history) checkFronts(ctx context.Context) error {
	for _, f := range h.fronts {
		if err := f.exited(); err != nil {
			h.violate("every front door runs", "%v", err)
			return err
		}
		if err := h.client(admin, f).do(ctx, http.MethodGet, "/readyz", nil).failure(); err != nil {
			return err
		}
	}
	return nil
}

// checkAvailable returns an error while a front door finds a backend unavailable, reports it so, or does not forward requests.
func (w *world) checkAvailable(ctx context.Context) error {
	for _, f := range w.fronts {
		c := w.client(admin, f)
		var list apiregistrationv1.APIServiceList
		if err := c.do(ctx, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", nil).decode(&list); err != nil {
			return err
		}
		available := map[string]string{}
		for _, a := range list.Items {
			for _, condition := range a.Status.Conditions {
				if condition.Type == apiregistrationv1.Available {
					available[a.Name] = fmt.Sprintf("%s, %s: %s", condition.Status, condition.Reason, condition.Message)
				}
			}
		}
		for _, b := range w.backends {
			if got := available[b.apiService()]; len(got) < 4 || got[:4] != "True" {
				return fmt.Errorf("%s: Available of %s is %q, want True", f.name, b.apiService(), got)
			}
			if err := c.do(ctx, http.MethodGet, b.path("default"), nil).failure(); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

// checkDocuments returns an error while front doors serve different documents, or documents without a backend.
func (w *world) checkDocuments(ctx context.Context) error {
	for _, path := range []string{"/apis", "/openapi/v3"} {
		var first []byte
		for i, f := range w.fronts {
			header := http.Header{}
			if path == "/apis" {
				header.Set("Accept", aggregatedDiscovery)
			}
			a := w.client(admin, f).get(ctx, path, header)
			if err := a.failure(); err != nil {
				return err
			}
			for _, b := range w.backends {
				if !bytes.Contains(a.body, []byte(b.group)) {
					return fmt.Errorf("%s: %s does not contain %s", f.name, path, b.group)
				}
			}
			if i == 0 {
				first = a.body
			} else if !bytes.Equal(first, a.body) {
				return fmt.Errorf("%s of %s and %s differ: %s", path, w.fronts[0].name, f.name, firstDifference(first, a.body))
			}
		}
	}
	return nil
}

// firstDifference returns what surrounds the first difference of two documents.
func firstDifference(a, b []byte) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	around := func(text []byte) []byte { return text[max(0, min(at, len(text))-60):min(len(text), at+60)] }
	return fmt.Sprintf("%q and %q", around(a), around(b))
}
