package transport

import "sync"

// Shares divides a limit among users so that one user cannot take all of it. The zero value is ready to use.
//
// A user may take more as long as this leaves at least a quarter of the user's current share free (the dynamic
// thresholds of shared-memory switches). A single user can take four fifths, two can take four ninths each, and a new
// user always finds something free unless there are many others.
type Shares struct {
	mu    sync.Mutex // guards the fields below
	total int64
	held  map[string]int64 // by user; values are not zero
	freed chan struct{}    // closed by the next Give; nil if there is no waiter
}

const shareFactor = 4

// Take takes n of limit for user. full reports whether n is not available to any user.
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

// Give returns n of the amount that user took.
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

// Freed returns a channel that is closed by the next Give. To avoid missing it, a waiting caller must call Freed
// before Take.
func (s *Shares) Freed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// Total returns the amount taken by all users.
func (s *Shares) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Slot is a concurrency slot of a backend, acquired by Admit for one request. Its methods may be called from any
// goroutine. The zero value holds no slot.
type Slot struct {
	mu      sync.Mutex // guards the fields below
	backend *Backend   // nil if there is no slot or it was released
	user    string
	stalled bool
}

// Admit acquires a concurrency slot of the backend for a user's request, or returns a *LimitError. The caller must
// call p.Release. RoundTrip does not require a slot: a long-running request may release its slot when its response
// has begun.
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

// Release returns the slot. Further calls have no effect.
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

// Stall releases the slot while the client of this request does not read the response. The backend may still have to
// buffer a part of such a response, so stalled responses have the same limit and the same shares per user. If the
// limit is reached, Stall returns false and the request keeps its slot.
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
