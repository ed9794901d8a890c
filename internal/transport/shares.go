package transport

import "sync"

// Shares divides a limit among users so that none of them can have all of it. The zero value is ready.
//
// A user may take more while that leaves free at least a fourth of what the user then has (the dynamic thresholds of
// shared-memory switches): alone one can have four fifths, two can have four ninths each, and a user that has nothing finds
// something free however few others have taken the rest.
type Shares struct {
	mu    sync.Mutex // guards what follows
	total int64
	held  map[string]int64 // by user; none is zero
	freed chan struct{}    // closed by the next Give; nil: nothing waits
}

const shareFactor = 4

// Take takes n of limit for user. full is whether there is not so much left for any user.
func (s *Shares) Take(user string, n, limit int64) (ok, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := limit - s.total - n
	if free < 0 {
		return false, true
	}
	held := s.held[user]
	if held > 0 && held+n > shareFactor*free+n {
		return false, false
	}
	if s.held == nil {
		s.held = make(map[string]int64)
	}
	s.held[user] = held + n
	s.total += n
	return true, false
}

// Give gives n of what user took back.
func (s *Shares) Give(user string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= n
	if s.held[user] -= n; s.held[user] == 0 {
		delete(s.held, user)
	}
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// Freed returns a channel that is closed when something is given back. A caller that waits gets it before it calls Take, so that
// it misses nothing.
func (s *Shares) Freed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// Total is how much is taken.
func (s *Shares) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Slot is one of a backend's concurrency slots, which Admit gives. It belongs to one request. Its methods may be called
// by any goroutine. The zero value holds none.
type Slot struct {
	mu      sync.Mutex // guards what follows
	backend *Backend   // nil: there is no slot, or it was released
	user    string
	stalled bool
}

// Admit takes one of the concurrency slots of this backend for a user's request, or returns a *LimitError. p.Release
// must follow. RoundTrip takes no slot: a long-running request may release its own when its response has begun.
func (b *Backend) Admit(p *Slot, user string) error {
	limit := b.limit.Load()
	if ok, full := b.slots.Take(user, 1, limit); !ok {
		b.metrics.Limited()
		return &LimitError{Backend: b.key.name, Limit: int(limit), Share: !full}
	}
	b.metrics.InFlight(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend, p.user, p.stalled = b, user, false
	return nil
}

// Release gives the slot back. Only the first call does anything.
func (p *Slot) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.backend
	if b == nil {
		return
	}
	p.backend = nil
	if p.stalled {
		b.stalled.Give(p.user, 1)
		return
	}
	b.slots.Give(p.user, 1)
	b.metrics.InFlight(-1)
}

// Stall gives the slot to others while the client of this request does not read the response. The backend may have to
// buffer a part of such a response all the same, so stalled responses are bounded too, by the same number, and shared
// likewise: beyond it Stall returns false, and the request keeps its slot.
func (p *Slot) Stall() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.backend
	if b == nil || p.stalled {
		return true
	}
	if ok, _ := b.stalled.Take(p.user, 1, b.limit.Load()); !ok {
		return false
	}
	p.stalled = true
	b.slots.Give(p.user, 1)
	b.metrics.InFlight(-1)
	return true
}
