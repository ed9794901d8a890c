package transport

import "sync"

// Shares divides a limit among users so that none of them can have all of it. The zero value is ready.
//
// A user may take more while that leaves free at least a fourth of what the user then has (the dynamic thresholds of
// shared-memory switches): alone one can have four fifths, two can have four ninths each, and whoever has nothing finds
// something free however few others have taken the rest.
type Shares struct {
	mu    sync.Mutex // guards what follows
	total int64
	held  map[string]int64 // by user; none is zero
}

const shareFactor = 4

// Take takes n of limit for user. full is whether there is not so much left for anybody.
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
}

// Total is how much is taken.
func (s *Shares) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Place is one of the places for requests that a backend has, which Admit gives. It belongs to one request. Its methods may be
// called by any goroutine. The zero value is none.
type Place struct {
	mu      sync.Mutex // guards what follows
	backend *Backend   // nil: there is no place, or it was given back
	user    string
	stalled bool
}

// Admit takes one of the places for requests that this backend may hold, for a user, or returns a *LimitError. p.Release
// must follow. RoundTrip does not ask for a place: what is long-running may give its own back when its response has begun.
func (b *Backend) Admit(p *Place, user string) error {
	limit := b.limit.Load()
	if ok, full := b.places.Take(user, 1, limit); !ok {
		b.metrics.Limited()
		return &LimitError{Backend: b.key.name, Limit: int(limit), Share: !full}
	}
	b.metrics.InFlight(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend, p.user, p.stalled = b, user, false
	return nil
}

// Release gives the place back. Only the first call does anything.
func (p *Place) Release() {
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
	b.places.Give(p.user, 1)
	b.metrics.InFlight(-1)
}

// Stall gives the place to others while the client of this request does not take the response. Responses of which the backend
// may have to keep a part all the same are bounded too, by as many as there are places, and shared likewise: without one left
// it returns false, and the request keeps its place.
func (p *Place) Stall() bool {
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
	b.places.Give(p.user, 1)
	b.metrics.InFlight(-1)
	return true
}
