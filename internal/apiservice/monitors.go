package apiservice

import (
	"context"
	"sync"

	"portico.dev/internal/transport"
)

// monitors is the monitors that run, by backend.
type monitors struct {
	mu      sync.RWMutex
	running map[*transport.Backend]*running
	wg      sync.WaitGroup
}

type running struct {
	*monitor
	cancel context.CancelFunc
}

func (m *monitors) get(b *transport.Backend) (*monitor, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.running[b]
	if !ok {
		return nil, false
	}
	return r.monitor, true
}

// start runs a monitor until ctx ends or it is dropped.
func (m *monitors) start(ctx context.Context, b *transport.Backend, mon *monitor) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = make(map[*transport.Backend]*running)
	}
	m.running[b] = &running{monitor: mon, cancel: cancel}
	m.wg.Go(func() { mon.run(ctx) })
}

// retain drops the monitors of backends that are not kept. Their last probe ends by its context; stop waits for it.
func (m *monitors) retain(keep map[*transport.Backend]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b, r := range m.running {
		if !keep[b] {
			r.cancel()
			delete(m.running, b)
		}
	}
}

func (m *monitors) stop() {
	m.retain(nil)
	m.wg.Wait()
}

// snapshot is the monitors of this moment.
func (m *monitors) snapshot() map[*transport.Backend]*monitor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make(map[*transport.Backend]*monitor, len(m.running))
	for b, r := range m.running {
		out[b] = r.monitor
	}
	return out
}
