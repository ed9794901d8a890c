package namespaces

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/metadata"
)

// severalEnv returns an env with a namespace that is being deleted and widgets at two backends of one group-version. The second
// one is changed.
func severalEnv(t *testing.T, change func(*GroupVersion)) (w *env, at map[string]*fakeMetadata) {
	w = blockedEnv(t, func(*GroupVersion) {})
	at = map[string]*fakeMetadata{"one": newFakeMetadata(), "two": newFakeMetadata()}
	for _, m := range at {
		m.put(widgets, "doomed", "w")
	}
	w.serve(coreV1(), shop(func(gv *GroupVersion) { gv.APIService += "/one" }), shop(func(gv *GroupVersion) {
		gv.APIService += "/two"
		change(gv)
	}))
	return w, at
}

func (w *env) finalizerAt(at map[string]*fakeMetadata) *Finalizer {
	config := w.config()
	config.MetadataAt = func(backend string) metadata.Interface { return at[backend] }
	return New(config)
}

// Each of several backends has its own objects, independent of objects with the same name at other backends.
func TestObjectsOfAllBackendsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := severalEnv(t, func(*GroupVersion) {})
		w.after(w.finalizerAt(at), time.Minute)
		if !w.gone("doomed") || at["one"].count(widgets) > 0 || at["two"].count(widgets) > 0 || len(w.debtStore.All()) > 0 {
			t.Errorf("gone %v, %d and %d widgets, debts %v, want the namespace gone, 0 and 0 widgets, and no debts", w.gone("doomed"), at["one"].count(widgets), at["two"].count(widgets), w.debtStore.All())
		}
	})
}

// A namespace waits for a dead one of several backends as it waits for a single one, and the objects at the other backends are
// deleted meanwhile.
func TestNamespaceWaitsForOneDeadBackendOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := severalEnv(t, dead)
		if w.after(w.finalizerAt(at), time.Hour); w.gone("doomed") {
			t.Fatal("the namespace was finalized without a dead backend, want it kept for as long as the backend is dead")
		}
		if at["one"].count(widgets) > 0 || at["two"].called("list", widgets) > 0 {
			t.Errorf("%d widgets at the live backend, %d lists at the dead one, want 0 and 0", at["one"].count(widgets), at["two"].called("list", widgets))
		}
		if got := w.condition("doomed", discoveryFailure); !strings.Contains(got, "backend two of APIRoute v1.shop.example.com is not available (FailedDiscoveryCheck since 2026-05-04T03:02:01Z)") {
			t.Errorf("condition %s = %s, want it to name backend two", discoveryFailure, got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w, at := severalEnv(t, func(gv *GroupVersion) {
			dead(gv)
			gv.FinalizeAfter, gv.UnreachableSince = time.Minute, time.Now()
		})
		took := w.after(w.finalizerAt(at), time.Hour)
		if !w.gone("doomed") || took < time.Minute-time.Second || took > 2*time.Minute {
			t.Fatalf("gone %v after %s, want the namespace gone after a minute", w.gone("doomed"), took)
		}
		all := w.debtStore.All()
		if len(all) != 1 || all[0].APIService != "v1.shop.example.com/two" || w.debtStore.Message("v1.shop.example.com/two") == "" || w.debtStore.Message("v1.shop.example.com") != "" ||
			w.debtStore.Message("v1.shop.example.com/one") != "" {
			t.Errorf("debts %+v, want one of the dead backend", all)
		}
	})
}

func TestEachBackendHasItsOwnDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := severalEnv(t, func(gv *GroupVersion) {
			dead(gv)
			gv.FinalizeAfter, gv.UnreachableSince = time.Minute, time.Now()
		})
		served := w.servedNow()
		dead(&served[1])
		served[1].FinalizeAfter, served[1].UnreachableSince = time.Minute, time.Now()
		w.serve(served...)
		if w.after(w.finalizerAt(at), time.Hour); !w.gone("doomed") || len(w.debtStore.All()) != 2 {
			t.Errorf("gone %v, debts %+v, want the namespace gone and 2 debts", w.gone("doomed"), w.debtStore.All())
		}
	})
}
