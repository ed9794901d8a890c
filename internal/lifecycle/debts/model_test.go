package debts

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// A model of a backend's history: namespaces of one name follow each other, with objects of the same few names. The backend
// dies, answers wrongly and returns, and the front door restarts. In every history no object of a live namespace is deleted,
// and no object of a deleted namespace is left after all debts are paid.
func TestCleanupNeverDeletesObjectsOfNewNamespace(t *testing.T) {
	b := newBackend(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &history{b: b, fakeEtcd: &fakeEtcd{}, now: time.Now().Add(-24 * time.Hour), of: map[types.UID]int{}}
		m.cleanerEnv, m.stop = open(t, m.fakeEtcd, b)
		defer func() { m.stop() }()
		b.mu.Lock()
		b.objects, b.deleted, b.answers, b.behind = nil, nil, nil, 0
		b.mu.Unlock()
		rt.Repeat(map[string]func(*rapid.T){
			"create":   m.create,
			"recreate": m.recreate,
			"pay":      func(rt *rapid.T) { m.pay(rt, rapid.SampledFrom(faults).Draw(rt, "fault")) },
			"pay well": func(rt *rapid.T) { m.pay(rt, nil) },
			"restart":  func(*rapid.T) { m.stop(); m.cleanerEnv, m.stop = open(t, m.fakeEtcd, b) },
			"time goes": func(rt *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond)
			},
			"": m.check,
		})
	})
}

type history struct {
	b          *backend
	fakeEtcd   *fakeEtcd
	cleanerEnv *cleanerEnv
	stop       func()
	now        time.Time
	epoch      int               // number of the live namespace of that name
	of         map[types.UID]int // objects by the namespace that they were made in
	made       int
}

var faults = []func(http.ResponseWriter, *http.Request) bool{
	on("/widgets", http.StatusInternalServerError), on("/widgets", http.StatusNotFound),
	on("/widgets/a", http.StatusOK), on("/widgets/b", http.StatusForbidden),
	on("/apis/shop.example.com/v1", http.StatusServiceUnavailable),
}

func (m *history) uid() types.UID { return types.UID(fmt.Sprintf("namespace-%d", m.epoch)) }

// create makes an object in the current namespace, unless one of that name exists.
func (m *history) create(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	for _, o := range m.b.objects {
		if o.Name == name {
			return
		}
	}
	m.made++
	o := object("shared", name, types.UID(fmt.Sprintf("object-%d", m.made)), m.now)
	m.of[o.UID] = m.epoch
	m.b.objects = append(m.b.objects, o)
}

// recreate ends a namespace while the backend is away, and begins the next one of that name. The backend went away some time
// before the debt, and the namespace stays for Settle after the second of the debt.
func (m *history) recreate(rt *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(10_000, 20_000).Draw(rt, "outage")) * time.Millisecond)
	d := NewDebt("shared", m.uid(), shop, service, "a policy")
	d.Since = m.now.UTC().Truncate(time.Second)
	if err := m.cleanerEnv.store.Record(rt.Context(), d); err != nil {
		rt.Fatal(err)
	}
	m.now = d.Since.Add(FinalizeDelay).Add(time.Duration(rapid.IntRange(0, 999).Draw(rt, "after")) * time.Millisecond)
	m.epoch++
}

func (m *history) pay(rt *rapid.T, fault func(http.ResponseWriter, *http.Request) bool) {
	m.b.mu.Lock()
	m.b.answers = fault
	m.b.mu.Unlock()
	err := m.cleanerEnv.clean(rt.Context(), service)
	if fault == nil && err != nil {
		rt.Fatalf("clean() with a healthy backend failed: %v, want no error", err)
	}
	if err == nil && len(m.cleanerEnv.store.All()) > 0 {
		rt.Fatalf("clean() returned no error, open debts = %v, want none", m.cleanerEnv.store.All())
	}
}

func (m *history) check(rt *rapid.T) {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	for _, uid := range m.b.deleted {
		if m.of[uid] == m.epoch {
			rt.Fatalf("object %s of the live namespace was deleted, want it kept", uid)
		}
	}
	m.b.deleted = nil // of this namespace and earlier ones; later deletions are checked against the namespace that lives then
	if len(m.cleanerEnv.store.All()) > 0 {
		return
	}
	for _, o := range m.b.objects {
		if m.of[o.UID] != m.epoch {
			rt.Fatalf("object %s of a deleted namespace is left without an open debt, want none", o.UID)
		}
	}
}
