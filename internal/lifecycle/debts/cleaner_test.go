package debts

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noon is a time of the backend's clock and of the cleaner's clock.
var noon = time.Now().Add(-time.Hour).Truncate(time.Second)

func TestCleanupDeletesOnlyObjectsOfOldNamespace(t *testing.T) {
	old := object("gone", "old", "u1", noon.Add(-time.Minute))
	tests := map[string]struct {
		object  metav1.PartialObjectMetadata
		change  func(*backend, *cleanerEnv)
		deleted bool
		trouble string // empty: the debt is paid
	}{
		"an object of the old namespace":             {object: old, deleted: true},
		"it was made a second after the debt":        {object: object("gone", "x", "u1", noon.Add(time.Second)), deleted: false},
		"an object of a new namespace of that name":  {object: object("gone", "old", "u1", noon.Add(FinalizeDelay)), deleted: false},
		"an object of another namespace":             {object: object("kept", "old", "u1", noon.Add(-time.Minute)), deleted: false},
		"it says that it is of the old namespace":    {object: saying(object("gone", "x", "u1", noon.Add(time.Hour)), "ns-1"), deleted: true},
		"it says that it is of another":              {object: saying(old, "ns-2"), deleted: false},
		"it is being deleted, and has a finalizer":   {object: held(old, true), deleted: false},
		"it has a finalizer":                         {object: held(old, false), deleted: true},
		"it has no uid":                              {object: object("gone", "old", "", noon.Add(-time.Minute)), trouble: "cannot be told from those of a new namespace"},
		"it has no age":                              {object: without(old), trouble: "cannot be told from those of a new namespace"},
		"the backend's clock is ten minutes behind":  {object: object("gone", "new", "u1", noon.Add(-5*time.Minute)), change: clock(10 * time.Minute)},
		"the same, and the object is older":          {object: object("gone", "old", "u1", noon.Add(-11*time.Minute)), change: clock(10 * time.Minute), deleted: true},
		"the backend's clock is ten minutes ahead":   {object: object("gone", "old", "u1", noon.Add(9*time.Minute)), change: clock(-10 * time.Minute), deleted: true},
		"the list is empty and it was known to have": {object: old, change: forgets("widgets"), deleted: true},
		"the resource is gone for good": {object: old, change: func(b *backend, o *cleanerEnv) {
			forgets("widgets")(b, o)
			b.objects, b.answers = nil, on("/widgets", http.StatusNotFound)
		}},
		"a listed resource answers 404":   {object: old, change: fails("/widgets", http.StatusNotFound), trouble: "widgets in namespace gone: list:"},
		"a listed resource answers 405":   {object: old, change: fails("/widgets", http.StatusMethodNotAllowed)},
		"lists fail":                      {object: old, change: fails("/widgets", http.StatusInternalServerError), trouble: "list:"},
		"discovery fails":                 {object: old, change: fails("/apis/shop.example.com/v1", http.StatusForbidden), trouble: "the backend answered 403"},
		"it deletes and nothing happens":  {object: old, change: fails("/widgets/old", http.StatusOK), trouble: "1 objects are still there after their deletion"},
		"it may not be deleted":           {object: old, change: fails("/widgets/old", http.StatusForbidden), trouble: "delete old:"},
		"somebody else deleted it before": {object: old, change: fails("/widgets/old", http.StatusNotFound), trouble: "still there"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			o, _ := open(t, &fakeEtcd{}, b)
			b.put(tt.object)
			if tt.change != nil {
				tt.change(b, o)
			}
			d := o.owe(t, "gone", "ns-1", noon)
			err := o.clean(t.Context(), service)
			if got := len(b.deleted) > 0; got != tt.deleted {
				t.Errorf("deleted objects = %v, objects left = %q, want a deletion %t", b.deleted, b.names(), tt.deleted)
			}
			_, open := o.store.Lookup(d.ID)
			switch {
			case tt.trouble == "" && (err != nil || open):
				t.Errorf("clean() error = %v, debt open %v, want no error and the debt paid", err, open)
			case tt.trouble != "" && (err == nil || !open || !strings.Contains(err.Error(), tt.trouble)):
				t.Errorf("clean() error = %v, debt open %v, want an error that contains %q and the debt open", err, open, tt.trouble)
			}
		})
	}
}

func saying(o metav1.PartialObjectMetadata, uid string) metav1.PartialObjectMetadata {
	o.Annotations = map[string]string{NamespaceUIDAnnotation: uid}
	return o
}

func held(o metav1.PartialObjectMetadata, going bool) metav1.PartialObjectMetadata {
	o.Finalizers = []string{"example.com/hold"}
	if going {
		now := metav1.Now()
		o.DeletionTimestamp = &now
	}
	return o
}

func without(o metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	o.CreationTimestamp = metav1.Time{}
	return o
}

func clock(behind time.Duration) func(*backend, *cleanerEnv) {
	return func(b *backend, _ *cleanerEnv) { b.behind = behind }
}

func forgets(resource string) func(*backend, *cleanerEnv) {
	return func(b *backend, o *cleanerEnv) { b.unlisted, o.known = true, []string{resource} }
}

// on answers every request whose path has the suffix.
func on(suffix string, code int) func(http.ResponseWriter, *http.Request) bool {
	reasons := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed,
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		answer(w, code, reasons[code])
		return true
	}
}

func fails(suffix string, code int) func(*backend, *cleanerEnv) {
	return func(b *backend, _ *cleanerEnv) { b.answers = on(suffix, code) }
}

// running runs a cleaner until the function that it returns is called.
func (o *cleanerEnv) running() func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = o.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// until waits until the condition holds, and checks it at every change of the store.
func (o *cleanerEnv) until(t *testing.T, what string, true func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		changed := o.store.Changed()
		if true() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("condition not met after a minute: want %s; open debts %v, entries %+v", what, o.store.All(), o.Entries())
		}
	}
}

func TestDebtsArePaidWhenBackendReturns(t *testing.T) {
	b, k := newBackend(t), &fakeEtcd{}
	o, stop := open(t, k, b)
	o.become(APIServiceState{Registered: true, Reason: "FailedDiscoveryCheck"})
	b.put(object("a", "x", "u1", noon.Add(-time.Minute)))
	b.put(object("b", "x", "u2", noon.Add(-time.Minute)))
	o.owe(t, "a", "ns-a", noon)
	o.owe(t, "b", "ns-b", noon)
	if text := o.store.Message(service); !strings.Contains(text, "what 2 namespaces left there") || !strings.Contains(text, "(a, b)") {
		t.Errorf("Message() = %q, want the 2 namespaces a and b", text)
	}
	end := o.running()
	for _, e := range o.Entries() {
		if e.State != Waiting || e.Message != "FailedDiscoveryCheck" {
			t.Errorf("entry = %+v, want state %v with message FailedDiscoveryCheck", e, Waiting)
		}
	}
	if b.names() != "a/x b/x" {
		t.Errorf("objects of an unavailable backend = %q, want %q: no requests while it is unavailable", b.names(), "a/x b/x")
	}
	end()
	stop()

	// Another process reads the debts that this one left.
	o, _ = open(t, k, b)
	o.become(APIServiceState{Registered: true, Reason: "FailedDiscoveryCheck"})
	defer o.running()()
	o.become(APIServiceState{Registered: true, Ready: true})
	o.until(t, "no debts", func() bool { return len(o.store.All()) == 0 })
	if b.names() != "" || o.store.Message(service) != "" {
		t.Errorf("objects left = %q, message = %q, want none of both", b.names(), o.store.Message(service))
	}
}

func TestFailedCleanupIsReportedAndRetried(t *testing.T) {
	b := newBackend(t)
	b.answers = on("/widgets", http.StatusInternalServerError)
	b.put(object("gone", "x", "u1", noon.Add(-time.Minute)))
	o, _ := open(t, &fakeEtcd{}, b)
	d := o.owe(t, "gone", "ns-1", noon)
	defer o.running()()
	o.until(t, "the condition says why", func() bool {
		return strings.Contains(o.store.Message(service), "the last attempt failed: widgets in namespace gone: list:")
	})
	if e := o.Entries(); len(e) != 1 || e[0].State != Paying || e[0].ID != d.ID || e[0].Message == "" {
		t.Errorf("entries = %+v, want one of debt %s in state %v with a message", e, d.ID, Paying)
	}
	b.mu.Lock()
	b.answers = nil
	b.mu.Unlock()
	o.until(t, "paid", func() bool { return len(o.store.All()) == 0 })
}

func TestDebtOfDeletedAPIServiceCanBeForgotten(t *testing.T) {
	b := newBackend(t)
	o, _ := open(t, &fakeEtcd{}, b)
	d := o.owe(t, "gone", "ns-1", noon)
	o.become(APIServiceState{})
	w := httptest.NewRecorder()
	o.ServeList(w, httptest.NewRequest(http.MethodGet, "/debug/debts", nil))
	var list List
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Debts) != 1 || list.Debts[0].State != Orphaned || list.Debts[0].ID != d.ID {
		t.Errorf("list = %s, error %v, want one debt %s in state %v", w.Body, err, d.ID, Orphaned)
	}
	for _, step := range []struct {
		id   string
		code int
	}{{"nonsense", http.StatusNotFound}, {d.ID, http.StatusOK}, {d.ID, http.StatusNotFound}} {
		w := httptest.NewRecorder()
		o.ServeForget(w, httptest.NewRequest(http.MethodDelete, "/debug/debts/"+step.id, nil), step.id)
		if w.Code != step.code {
			t.Errorf("ServeForget(%s) = %d, want %d: %s", step.id, w.Code, step.code, w.Body)
		}
	}
	if len(o.store.All()) != 0 {
		t.Errorf("%d debts are left after ServeForget, want 0", len(o.store.All()))
	}
}

func TestNumberOfDebtsIsBounded(t *testing.T) {
	b := newBackend(t)
	o, _ := open(t, &fakeEtcd{}, b)
	full := map[string]Debt{}
	for i := range maxDebts {
		d := NewDebt("gone", types.UID(time.Duration(i).String()), shop, service, "")
		full[d.ID] = d
	}
	o.store.replace(full)
	if err := o.store.Record(t.Context(), NewDebt("gone", "one-more", shop, service, "")); err != ErrFull {
		t.Errorf("Record() of one debt too many: error = %v, want %v", err, ErrFull)
	}
}

// An unreadable debt is not ignored: its backend stays unavailable, and so does every backend that it may be about.
func TestUnreadableDebtKeepsBackendUnavailable(t *testing.T) {
	const other = "v1.other.example.com"
	written := func(change func(*Debt)) []byte {
		d := NewDebt("gone", "ns-1", shop, service, "dead")
		change(&d)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	id := IDOf("ns-1", shop, service)
	for _, c := range []struct {
		situation string
		value     []byte
		why       string
		any       bool // it may be about any backend
	}{
		{"of a newer release", written(func(d *Debt) { d.Version = debtVersion + 1 }), "newer release", false},
		{"with a field of another type", []byte(`{"id":"` + id + `","apiService":"` + service + `","since":7}`), "damaged", false},
		{"of another key", written(func(d *Debt) { d.ID = "x" }), `it says that it is "x"`, false},
		{"not JSON", []byte("\x00\x01"), "damaged", true},
		{"empty", nil, "damaged", true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			b := newBackend(t)
			etcd := &fakeEtcd{}
			if err := etcd.Put(t.Context(), prefix+id, c.value); err != nil {
				t.Fatal(err)
			}
			o, _ := open(t, etcd, b)
			if text := o.store.Message(service); !strings.Contains(text, c.why) || !strings.Contains(text, "aggregator debts forget "+id) {
				t.Errorf("Message() of the debt's backend = %q, want %q and the command to forget %s", text, c.why, id)
			}
			if text := o.store.Message(other); (text != "") != c.any {
				t.Errorf("Message() of another backend = %q, want a message %t", text, c.any)
			}
			if e := o.Entries(); len(e) != 1 || e[0].State != Unreadable || e[0].ID != id || !strings.Contains(e[0].Message, c.why) {
				t.Errorf("entries = %+v, want one of debt %s in state %v with %q", e, id, Unreadable, c.why)
			}
			if err := o.clean(t.Context(), service); err != nil || len(o.store.All()) != 1 || len(b.deleted) > 0 {
				t.Errorf("clean() error = %v, %d debts, deleted %v, want no error, 1 debt and no deletion", err, len(o.store.All()), b.deleted)
			}
			w := httptest.NewRecorder()
			o.ServeForget(w, httptest.NewRequest(http.MethodDelete, "/debug/debts/"+id, nil), id)
			if w.Code != http.StatusOK || o.store.Message(service) != "" || o.store.Message(other) != "" {
				t.Errorf("ServeForget() = %d %s, message afterwards %q, want 200 and no message", w.Code, w.Body, o.store.Message(service))
			}
		})
	}
}

// A release without versions wrote the same debt without one.
func TestDebtWithoutVersionIsRead(t *testing.T) {
	d := decodeDebt("a", []byte(`{"id":"a","namespace":"gone","namespaceUID":"u","groupVersion":"shop.example.com/v1","apiService":"v1.shop.example.com","since":"2026-11-20T21:46:04Z"}`))
	if d.unreadable != "" || d.APIService != service {
		t.Errorf("decodeDebt() = %+v, want a readable debt of %s", d, service)
	}
}
