package namespaces

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/lifecycle/debts"
)

// blockedEnv returns an env with a namespace that was deleted a moment ago, and with a dead backend.
func blockedEnv(t *testing.T, change func(*GroupVersion)) *env {
	w := newEnv(t, terminating("doomed", "1"))
	w.served = append(w.served, shop(func(gv *GroupVersion) {
		dead(gv)
		gv.UnreachableSince = time.Now().Add(-time.Hour)
		change(gv)
	}))
	return w
}

// after reconciles the namespace until it is gone or d has passed, and returns the time that it took.
func (w *env) after(f *Finalizer, d time.Duration) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !w.gone("doomed") && time.Since(start) < d {
		again, err := f.reconcile(context.Background(), "doomed")
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(again) // of a synctest bubble
	}
	return time.Since(start)
}

func TestNamespaceWaitsForDeadBackendAsConfigured(t *testing.T) {
	const long = 2 * time.Hour
	policy := func(gv *GroupVersion) { gv.FinalizeAfter = 10 * time.Minute }
	tests := map[string]struct {
		change   func(*GroupVersion)
		from, to time.Duration // to 0: without end
		because  string
	}{
		"no policy":                  {func(*GroupVersion) {}, 0, 0, ""},
		"ten minutes":                {policy, 10 * time.Minute, 10*time.Minute + 10*time.Second, "portico.dev/finalize-namespaces-after is 10m0s"},
		"it has just failed":         {func(gv *GroupVersion) { policy(gv); gv.UnreachableSince = time.Now().Add(time.Minute) }, 11 * time.Minute, 11*time.Minute + 10*time.Second, "10m0s"},
		"another replica reaches it": {func(gv *GroupVersion) { policy(gv); gv.UnreachableSince = time.Time{} }, 0, 0, ""},
		"its Service was in this namespace": {
			func(gv *GroupVersion) { gv.Service.Namespace = "doomed" }, DefaultCycleGrace, DefaultCycleGrace + 10*time.Second,
			"its Service doomed/shop was in this namespace and cannot come back",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := blockedEnv(t, tt.change)
				took := w.after(w.finalizer(), long)
				if tt.to == 0 {
					if w.gone("doomed") || len(w.debtStore.All()) > 0 {
						t.Errorf("gone %v after %v, debts %v, want the namespace kept and no debts", w.gone("doomed"), took, w.debtStore.All())
					}
					return
				}
				if !w.gone("doomed") || took < tt.from-time.Second || took > tt.to {
					t.Errorf("gone %v after %v, want %v to %v", w.gone("doomed"), took, tt.from, tt.to)
				}
				w.wantDebt(tt.because)
			})
		})
	}
}

// wantDebt checks the debt and the Event with its reason.
func (w *env) wantDebt(because string) {
	w.t.Helper()
	all := w.debtStore.All()
	if len(all) != 1 || all[0].Namespace != "doomed" || all[0].NamespaceUID != "1" || all[0].GroupVersion != "shop.example.com/v1" ||
		all[0].APIService != "v1.shop.example.com" || !strings.Contains(all[0].Reason, because) {
		w.t.Errorf("debts = %+v, want one of namespace doomed because %q", all, because)
	}
	events, err := w.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(events.Items) != 1 || events.Items[0].Reason != "NamespaceFinalizedWithoutBackend" ||
		events.Items[0].InvolvedObject.Name != "v1.shop.example.com" || !strings.Contains(events.Items[0].Message, because) {
		w.t.Errorf("events = %+v, want one NamespaceFinalizedWithoutBackend because %q", events.Items, because)
	}
}

func TestConditionStatesTimeAndReason(t *testing.T) {
	w := blockedEnv(t, func(gv *GroupVersion) { gv.FinalizeAfter = time.Hour })
	if _, err := w.finalizer().reconcile(t.Context(), "doomed"); err != nil {
		t.Fatal(err)
	}
	got := w.condition("doomed", discoveryFailure)
	for _, want := range []string{
		"APIService v1.shop.example.com is not available (FailedDiscoveryCheck since 2026-05-04T03:02:01Z)",
		"the namespace goes without it from ", "because portico.dev/finalize-namespaces-after is 1h0m0s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("condition %s = %s, want it to contain %q", discoveryFailure, got, want)
		}
	}
}

// A crash between the two writes must leave the debt, and not an orphan.
func TestDebtIsWrittenBeforeNamespaceIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := blockedEnv(t, func(gv *GroupVersion) { gv.FinalizeAfter = time.Second })
		time.Sleep(5 * time.Second)
		recorded := time.Now()
		again, err := w.finalizer().reconcile(t.Context(), "doomed")
		if err != nil || again <= 0 || w.gone("doomed") || len(w.debtStore.All()) != 1 {
			t.Fatalf("first reconcile: again %v, error %v, gone %v, debts %v, want the namespace kept and 1 debt", again, err, w.gone("doomed"), w.debtStore.All())
		}
		// A new process reads etcd. A full second has ended in between, so that creation timestamps differ.
		time.Sleep(again)
		if _, err := w.finalizer().reconcile(t.Context(), "doomed"); err != nil || !w.gone("doomed") {
			t.Fatalf("second reconcile: error %v, gone %v, want no error and the namespace gone", err, w.gone("doomed"))
		}
		since := w.debtStore.All()[0].Since
		if !time.Now().Truncate(time.Second).After(since) || since.After(recorded) {
			t.Errorf("debt of %v, recorded at %v, namespace gone at %v, want the debt no later than the record and at least a second before the end", since, recorded, time.Now())
		}
	})
}

func TestFailedDebtWriteKeepsNamespace(t *testing.T) {
	w := blockedEnv(t, func(gv *GroupVersion) { gv.FinalizeAfter = time.Nanosecond })
	f := w.finalizer()
	f.Debts = debts.NewStore(&brokenEtcd{}, f.Logger)
	if _, err := f.reconcile(t.Context(), "doomed"); err == nil || !errors.Is(err, errBroken) || w.gone("doomed") {
		t.Errorf("reconcile with a broken etcd: error = %v, gone %v, want %v and the namespace kept", err, w.gone("doomed"), errBroken)
	}
}

var errBroken = errors.New("etcd has no leader")

type brokenEtcd struct{ fakeEtcd }

func (*brokenEtcd) Put(context.Context, string, []byte) error { return errBroken }

// The policy gives up one backend, but not the other dead one.
func TestFinalizePolicyAppliesToOneBackend(t *testing.T) {
	w := blockedEnv(t, func(gv *GroupVersion) { gv.FinalizeAfter = time.Nanosecond })
	other := shop(dead)
	other.Group, other.APIService = "other.example.com", "v1.other.example.com"
	w.served = append(w.served, other)
	f := w.finalizer()
	for range 3 {
		if again, err := f.reconcile(t.Context(), "doomed"); err != nil || again == 0 {
			t.Fatalf("reconcile: again %v, error %v, want another attempt and no error", again, err)
		}
	}
	if w.gone("doomed") || len(w.debtStore.All()) != 0 {
		t.Errorf("gone %v, debts %v, want the namespace kept and no debts", w.gone("doomed"), w.debtStore.All())
	}
}

// The backend returns between the debt and the end of the namespace. Its group-version stays closed until the debt is paid, so
// that the namespace must not wait for it.
func TestBackendReturningAfterDebtStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := blockedEnv(t, func(gv *GroupVersion) { gv.FinalizeAfter = time.Second })
		time.Sleep(5 * time.Second)
		f := w.finalizer()
		if _, err := f.reconcile(t.Context(), "doomed"); err != nil {
			t.Fatal(err)
		}
		w.serve(coreV1(), shop(func(gv *GroupVersion) { gv.Current, gv.Reason = false, "CleanupDebt" }))
		if w.after(f, time.Minute); !w.gone("doomed") {
			t.Error("the namespace still exists a minute after the backend returned with a debt, want it gone")
		}
	})
}

func TestDiscoveryChangeRetriesNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, terminating("doomed", "1"))
		w.served = append(w.served, shop(dead))
		changed := make(chan chan struct{}, 1)
		changed <- make(chan struct{})
		current := func() <-chan struct{} {
			c := <-changed
			changed <- c
			return c
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		cfg := w.config()
		cfg.Changed = []func() <-chan struct{}{current}
		f := New(cfg)
		cfg.Namespaces.Informer()
		w.informer.Start(ctx.Done())
		go func() { done <- f.Run(ctx) }()
		time.Sleep(firstDelay + blockedRetry/2)
		synctest.Wait()
		if got := w.condition("doomed", discoveryFailure); !strings.Contains(got, "v1.shop.example.com") {
			t.Errorf("condition two seconds after the deletion = %s, want it to name v1.shop.example.com", got)
		}
		// The namespace is reconciled every two seconds; the change comes in between.
		w.serve(coreV1(), shop(nil))
		old := <-changed
		changed <- make(chan struct{})
		close(old)
		synctest.Wait()
		if !w.gone("doomed") {
			t.Error("the namespace still exists after discovery changed, want it gone at once")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.informer.Shutdown()
	})
}

func TestDebtIsReadableJSON(t *testing.T) {
	d := debts.NewDebt("doomed", types.UID("1"), widgets.GroupVersion(), "v1.shop.example.com", "because")
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back debts.Debt
	if err := json.Unmarshal(text, &back); err != nil || back != d {
		t.Errorf("Unmarshal(%s) = %+v, error %v, want %+v", text, back, err, d)
	}
}
