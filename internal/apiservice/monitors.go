package apiservice

import (
	"sync"

	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// monitors is the monitors that make rounds, by backend.
type monitors struct {
	rota    *run.TimerQueue
	mu      sync.RWMutex // for running
	running map[*transport.Backend]*running
}

type running struct {
	*monitor
	turn *run.ScheduledTask
}

func newMonitors() monitors {
	return monitors{rota: run.NewTimerQueue(), running: make(map[*transport.Backend]*running)}
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

// start lets a monitor make rounds until it is dropped.
func (m *monitors) start(b *transport.Backend, mon *monitor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[b] = &running{monitor: mon, turn: mon.join(m.rota)}
}

// retain drops the monitors of backends that are not kept. Their last probe ends by its context; the rota waits for it.
func (m *monitors) retain(keep map[*transport.Backend]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b, r := range m.running {
		if !keep[b] {
			r.turn.Remove()
			delete(m.running, b)
		}
	}
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
