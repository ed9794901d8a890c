package debts

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// History as a backend may live it: namespaces of one name follow each other, with objects of the same few names; the
// backend dies, lies and returns in between, and so does the front door. Whatever happens, nothing of a namespace that
// lives is deleted; and when all debts are paid, nothing is left of those that do not.
func TestTheNewNamespaceIsNeverTouched(t *testing.T) {
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
	epoch      int               // which namespace of that name lives
	of         map[types.UID]int // objects by the namespace that they were made in
	made       int
}

var faults = []func(http.ResponseWriter, *http.Request) bool{
	on("/widgets", http.StatusInternalServerError), on("/widgets", http.StatusNotFound),
	on("/widgets/a", http.StatusOK), on("/widgets/b", http.StatusForbidden),
	on("/apis/shop.example.com/v1", http.StatusServiceUnavailable),
}

func (m *history) uid() types.UID { return types.UID(fmt.Sprintf("namespace-%d", m.epoch)) }

// create makes an object in the namespace of the moment, unless one of that name is there.
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

// recreate is the end of a namespace while the backend is away, and the beginning of the next of that name. The backend
// went some time before the debt, and the namespace stays for Settle after the second of the debt.
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
		rt.Fatalf("with a backend that is well: %v", err)
	}
	if err == nil && len(m.cleanerEnv.store.All()) > 0 {
		rt.Fatalf("no error, and debts are left: %v", m.cleanerEnv.store.All())
	}
}

func (m *history) check(rt *rapid.T) {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	for _, uid := range m.b.deleted {
		if m.of[uid] == m.epoch {
			rt.Fatalf("%s belongs to the namespace that lives, and was deleted", uid)
		}
	}
	m.b.deleted = nil // of this namespace and before; what is deleted later is judged by who lives then
	if len(m.cleanerEnv.store.All()) > 0 {
		return
	}
	for _, o := range m.b.objects {
		if m.of[o.UID] != m.epoch {
			rt.Fatalf("%s is left of a namespace that is gone, and no debt is open", o.UID)
		}
	}
}
