package mirror

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/metrics"
)

// env is a running Mirror in a bubble.
type env struct {
	*Mirror
	t    *testing.T
	reg  *prometheus.Registry
	logs *observer.ObservedLogs
	stop func()
}

func during(t *testing.T, c Config, test func(*env)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		h := &env{t: t, reg: prometheus.NewRegistry(), logs: logs}
		c.Metrics, c.Logger = metrics.NewMirror(h.reg), zap.New(core)
		h.Mirror = New(c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		stopped := false
		h.stop = func() {
			if stopped {
				return
			}
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		defer func() {
			h.stop()
			if n := h.bytes.Load(); n != 0 {
				t.Errorf("%d bytes are held after the end, want 0", n)
			}
		}()
		test(h)
	})
}

// counts waits until all goroutines are blocked and checks the number of copies with this result. No copy may have another result.
func (h *env) counts(result string, n float64) {
	h.t.Helper()
	synctest.Wait()
	total := 0.0
	families, err := h.reg.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue()
		}
	}
	m := h.config.Metrics
	if got := testutil.ToFloat64(m.Reads.WithLabelValues("route", "other", result)); got != n || total != n {
		h.t.Errorf("%v copies with the result %s of %v copies, want %v and no other", got, result, total, n)
	}
}

// answering writes a response.
func answering(code int, body string) func(context.Context, http.ResponseWriter) error {
	return func(_ context.Context, w http.ResponseWriter) error {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		for _, part := range strings.SplitAfter(body, ",") {
			if _, err := w.Write([]byte(part)); err != nil {
				return err
			}
		}
		return nil
	}
}

// read mirrors a read with the response 200 {"a":1,"b":2}.
func (h *env) read(send func(context.Context, http.ResponseWriter) error) {
	r := h.Begin("route", "other", "/path")
	if r == nil {
		return
	}
	r.Response.WriteHeader(http.StatusOK, http.Header{"Content-Type": {"application/json"}})
	r.Response.Write([]byte(`{"a":1,`))
	r.Response.Write([]byte(`"b":2}`))
	r.Send = send
	h.End(r)
}

func TestMirrorResultIsCountedAndLogged(t *testing.T) {
	for name, c := range map[string]struct {
		send   func(context.Context, http.ResponseWriter) error
		result string
		log    map[string]any
	}{
		"the same":       {answering(200, `{"b":2,"a":1}`), metrics.MirrorSame, nil},
		"another code":   {answering(404, `{"a":1,"b":2}`), metrics.MirrorStatus, map[string]any{"code": int64(200), "mirrored": int64(404)}},
		"another body":   {answering(200, `{"a":1,"b":"secret"}`), metrics.MirrorBody, map[string]any{"differs": ".b"}},
		"no response":    {func(context.Context, http.ResponseWriter) error { return errors.New("refused") }, metrics.MirrorFailed, map[string]any{"failure": "refused"}},
		"nothing at all": {func(context.Context, http.ResponseWriter) error { return nil }, metrics.MirrorFailed, map[string]any{"failure": "there was no response"}},
		"one breaks off": {func(context.Context, http.ResponseWriter) error { panic(http.ErrAbortHandler) }, metrics.MirrorFailed, map[string]any{"failure": "the response broke off"}},
		"a panic":        {func(context.Context, http.ResponseWriter) error { panic("oh") }, metrics.MirrorFailed, map[string]any{"failure": "panic"}},
		"obsolete":       {func(context.Context, http.ResponseWriter) error { return ErrObsolete }, metrics.MirrorDropped, nil},
		"one too large":  {answering(200, `{"a":1,"b":"`+strings.Repeat(",", 1000)+`"}`), metrics.MirrorDropped, nil},
		"one that is slow": {func(ctx context.Context, _ http.ResponseWriter) error {
			<-ctx.Done()
			if ctx.Err() != context.Canceled {
				t.Errorf("error of the context = %v, want context.Canceled: the deadline holds for headers only", ctx.Err())
			}
			return ctx.Err()
		}, metrics.MirrorFailed, map[string]any{"failure": "there was no complete response in time"}},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, Config{MaxBody: 500}, func(h *env) {
				h.read(c.send)
				time.Sleep(time.Minute)
				h.counts(c.result, 1)
				lines := h.logs.FilterMessage("response to a mirrored read differs").All()
				if len(lines) == 0 != (c.log == nil) {
					t.Fatalf("logged %v, want entries: %v", lines, c.log != nil)
				}
				for _, line := range h.logs.All() {
					for key, value := range line.ContextMap() {
						if text, ok := value.(string); ok && strings.Contains(text, "secret") {
							t.Errorf("the log has %s=%s, want no part of a body", key, text)
						}
					}
				}
				for key, want := range c.log {
					if got := lines[0].ContextMap()[key]; got != want {
						t.Errorf("log field %s = %v, want %v", key, got, want)
					}
				}
			})
		})
	}
}

// A hanging backend holds a limited number of copies. The queue holds more, the rest is dropped. The original requests do not wait.
func TestMirrorQueueIsLimited(t *testing.T) {
	during(t, Config{MaxInFlight: 2, MaxWaiting: 3, Timeout: time.Hour}, func(h *env) {
		hang := make(chan struct{})
		var under atomic.Int64
		for range 20 {
			h.read(func(ctx context.Context, w http.ResponseWriter) error {
				under.Add(1)
				defer under.Add(-1)
				<-hang
				return answering(200, `{"a":1,"b":2}`)(ctx, w)
			})
			synctest.Wait()
		}
		if n := under.Load(); n != 2 || len(h.queue) != 3 {
			t.Errorf("%d copies in flight and %d in the queue, want 2 and 3", n, len(h.queue))
		}
		h.counts(metrics.MirrorDropped, 15)
		close(hang)
		synctest.Wait()
		if got := testutil.ToFloat64(h.config.Metrics.Reads.WithLabelValues("route", "other", metrics.MirrorSame)); got != 5 {
			t.Errorf("%v copies with the result same, want 5", got)
		}
	})
}

func TestRecordedBodiesAreLimited(t *testing.T) {
	during(t, Config{MaxBody: 10, MaxBytes: 25}, func(h *env) {
		record := func(n int) *Read {
			r := h.Begin("route", "other", "/path")
			r.Response.WriteHeader(http.StatusOK, http.Header{})
			for range n {
				r.Response.Write([]byte("x"))
			}
			return r
		}
		large := record(11)
		if h.bytes.Load() != 0 {
			t.Errorf("%d bytes are held for a body over the limit, want 0", h.bytes.Load())
		}
		h.End(large)
		h.counts(metrics.MirrorDropped, 1)
		first, second, third := record(10), record(10), record(10)
		if !third.Response.tooLarge || h.bytes.Load() != 20 {
			t.Errorf("%d bytes are held for three bodies, want 20, with the third rejected", h.bytes.Load())
		}
		h.End(third)
		h.Cancel(first)
		h.Cancel(second)
		h.counts(metrics.MirrorDropped, 2)
	})
}

func TestRunWaitsForMirrorsInFlight(t *testing.T) {
	during(t, Config{MaxInFlight: 1, Timeout: time.Hour}, func(h *env) {
		ended := false
		for range 3 {
			h.read(func(ctx context.Context, _ http.ResponseWriter) error {
				<-ctx.Done()
				ended = true
				return ctx.Err()
			})
		}
		synctest.Wait()
		h.stop()
		if !ended {
			t.Error("Run returned before the copy in flight ended, want it to wait")
		}
		h.counts(metrics.MirrorDropped, 3)
		h.read(answering(200, "{}"))
		h.counts(metrics.MirrorDropped, 4)
		if lines := h.logs.All(); len(lines) != 0 {
			t.Errorf("logged %v after the end, want nothing", lines)
		}
	})
}

func TestMirrorLogIsRateLimited(t *testing.T) {
	during(t, Config{LogInterval: 10 * time.Second}, func(h *env) {
		differ := func(n int) {
			for range n {
				h.read(answering(404, "{}"))
				synctest.Wait()
			}
		}
		differ(100)
		time.Sleep(10 * time.Second)
		differ(2)
		lines := h.logs.All()
		if len(lines) != 2 || lines[1].ContextMap()["omitted"] != int64(99) || lines[1].ContextMap()["path"] != "/path" {
			t.Errorf("logged %v, want 2 entries, the second with 99 omitted and the path /path", lines)
		}
		h.counts(metrics.MirrorStatus, 102)
	})
}
