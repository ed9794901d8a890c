package apiservice

import (
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/transport"
)

// bill is what one APIService owes.
type bill struct {
	mu      sync.Mutex // guards what follows
	text    string
	changed chan struct{}
}

func (b *bill) Owed(apiService string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if apiService == "v1.example.com" {
		return b.text
	}
	return ""
}

func (b *bill) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *bill) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = text
	close(b.changed)
	b.changed = make(chan struct{})
}

// A backend with debts is up and not available: what is left there must be seen by nobody.
func TestDebtsKeepABackendFromBeingAvailable(t *testing.T) {
	debts := &bill{text: "paying: objects of namespace a", changed: make(chan struct{})}
	h := newHouse(t, nil, func(_ *house, cfg *Config, _ *transport.Options) { cfg.Debts = debts })
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.add(h.remote("other.example.com", "v1", "server", b.port()))
	defer h.run()()
	h.is("v1.example.com", "False", CleanupDebt)
	h.is("v1.other.example.com", "True", passed)
	route, _ := h.Table().Lookup(schema.GroupVersion{Group: "example.com", Version: "v1"})
	if route.Available() || route.Backend == nil || !strings.Contains(route.Condition.Message, "namespace a") {
		t.Errorf("route %+v", route)
	}
	debts.say("")
	h.is("v1.example.com", "True", passed)
	debts.say("paying: objects of namespace b")
	h.is("v1.example.com", "False", CleanupDebt)
}

// A debt that is paid while its APIService is on its way into the table keeps nobody out for good.
func TestADebtIsPaidWhileItsAPIServiceIsJudged(t *testing.T) {
	const name = "v1.example.com"
	debts := &bill{changed: make(chan struct{})}
	h := newHouse(t, nil, func(_ *house, cfg *Config, _ *transport.Options) { cfg.Debts = debts })
	b := h.serve("server")
	h.add(external("server"))
	h.run()
	<-h.Ready()
	debts.say("paying: objects of namespace a") // nobody in the table owes it
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is(name, "False", CleanupDebt)
	debts.say("")
	h.is(name, "True", passed)
}

// Somebody who waits for a backend does not wait until its turn in the rounds comes.
func TestProbeSoon(t *testing.T) {
	h := newHouse(t, []runtime.Object{external("server")})
	b := h.serve("server")
	h.add(h.remote("example.com", "v1", "server", b.port()))
	defer h.run()()
	h.is("v1.example.com", "True", passed)
	route, _ := h.Table().Lookup(schema.GroupVersion{Group: "example.com", Version: "v1"})
	m, ok := h.monitors.get(route.Backend)
	if !ok {
		t.Fatal("nobody watches the backend")
	}
	h.ProbeSoon("v1.nobody.example.com")
	before := m.history(route.GroupVersion).last.at
	eventually(t, "probed again", func() bool {
		h.ProbeSoon("v1.example.com")
		return m.history(route.GroupVersion).last.at.After(before)
	})
}
