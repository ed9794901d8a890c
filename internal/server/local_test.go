package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/request"
)

// k8s.io/apiserver's latency trackers from Portico's context add up durations as upstream's do.
func TestLatenciesMatchAPIServer(t *testing.T) {
	theirs, _ := apirequest.LatencyTrackersFrom(apirequest.WithLatencyTrackers(t.Context()))
	var ours *apirequest.LatencyTrackers
	ForLocal(nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ours, _ = apirequest.LatencyTrackersFrom(r.Context())
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	for i := range reflect.TypeFor[apirequest.LatencyTrackers]().NumField() {
		told := []time.Duration{}
		for _, trackers := range []*apirequest.LatencyTrackers{theirs, ours} {
			d := reflect.ValueOf(trackers).Elem().Field(i).Interface().(apirequest.DurationTracker)
			for _, took := range []time.Duration{2, 5, 3} {
				d.TrackDuration(took)
			}
			told = append(told, d.GetLatency())
			d.Track(func() {
				for start := time.Now(); time.Since(start) == 0; { // until the clock advances
				}
			})
			if d.GetLatency() <= told[0] {
				t.Errorf("latency after Track = %s, want more than %s", d.GetLatency(), told[0])
			}
		}
		if told[0] != told[1] {
			t.Errorf("latency of %s = %d, want %d as in k8s.io/apiserver", reflect.TypeFor[apirequest.LatencyTrackers]().Field(i).Name, told[1], told[0])
		}
	}
}

func TestWarningsMatchAPIServer(t *testing.T) {
	warn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, text := range []string{"once", "once", `say "so"`, strings.Repeat("long", 1000), strings.Repeat("more", 100), "\n"} {
			warning.AddWarning(r.Context(), "", text)
		}
	})
	var told [][]string
	for _, h := range []http.Handler{genericfilters.WithWarningRecorder(warn), ForLocal(nil, warn)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		told = append(told, w.Header()["Warning"])
	}
	if len(told[0]) < 3 || !slices.Equal(told[0], told[1]) {
		t.Errorf("%d warnings %.300q, want the %d of k8s.io/apiserver", len(told[1]), told[1], len(told[0]))
	}
}

// An internal request that carries another request's context is a separate request.
func TestNestedRequestHasSeparateContext(t *testing.T) {
	b := newBench("alice *")
	var inner []string
	served := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inner = append(inner, factsOf(r.Context()))
		audit.AddAuditAnnotation(r.Context(), "inner/said", "so")
		recordFrom(r.Context()).ServedBy = "inner"
	})
	controller := &user.DefaultInfo{Name: "controller"}
	within := []http.Handler{
		NewInternalChain(controller, b.config.Metrics, zap.NewNop(), ForLocal(nil, served)),
		NewInternalChain(controller, b.config.Metrics, zap.NewNop(), served),
	}
	b.handler = func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotation(r.Context(), "outer/said", "so")
		recordFrom(r.Context()).ServedBy = "outer"
		before := factsOf(r.Context())
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		for _, h := range within {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/nodes", nil))
		}
		if after := factsOf(r.Context()); after != before {
			t.Errorf("facts of the outer request after the inner ones = %s, want %s", after, before)
		}
		_, _ = io.WriteString(w, "served")
	}
	b.do(t, http.MethodGet, "/api/v1/pods", "Test-User: alice", "Audit-Id: outer")
	if len(inner) != 2 || !strings.HasPrefix(inner[0], "nodes by controller, id ") || strings.Contains(fmt.Sprint(inner), "outer") {
		t.Errorf("facts of the inner requests = %q, want two requests for nodes by controller, without values of the outer one", inner)
	}
	if got := b.events[0]; got.Annotations["outer/said"] != "so" || got.Annotations["inner/said"] != "" || got.Annotations["portico.dev/served-by"] != "outer" {
		t.Errorf("audit annotations of the outer request = %v, want outer/said=so, served by outer and nothing of the inner ones", got.Annotations)
	}
}

func factsOf(ctx context.Context) string {
	info, _ := apirequest.RequestInfoFrom(ctx)
	who, _ := apirequest.UserFrom(ctx)
	id, known := audit.AuditIDFrom(ctx)
	if known && id != types.UID(request.AuditID(ctx)) {
		return fmt.Sprint("two ids: ", id, ", ", request.AuditID(ctx))
	}
	return info.Resource + " by " + who.GetName() + ", id " + request.AuditID(ctx)
}

// The API objectives exclude the time in webhooks and in a queue.
func TestWaitTimeIncludesWebhooksAndQueue(t *testing.T) {
	c := &requestContext{}
	c.record.Waited = time.Second
	if got := c.waitTime(); got != time.Second {
		t.Errorf("time outside the server, of a proxied request = %s, want 1s", got)
	}
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces", nil)
	c.local = newLocalRequest(httptest.NewRecorder(), r)
	trackers := &c.local.latencies.LatencyTrackers
	trackers.MutatingWebhookTracker.TrackDuration(2 * time.Second)
	trackers.MutatingWebhookTracker.TrackDuration(3 * time.Second) // one after the other
	trackers.ValidatingWebhookTracker.TrackDuration(4 * time.Second)
	trackers.ValidatingWebhookTracker.TrackDuration(5 * time.Second) // concurrently
	trackers.StorageTracker.TrackDuration(time.Hour)
	if got := c.waitTime(); got != 11*time.Second {
		t.Errorf("time outside the server, of a local request = %s, want 11s", got)
	}
}
