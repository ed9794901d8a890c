package merge

import (
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// MaxBytes is the default limit of New.
	MaxBytes = 512 << 20
	// byteFactor is the number of bytes charged for each byte of a list, which is read, copied into items and encoded.
	byteFactor = 3
	// eventFactor is the number of bytes charged for each byte of a large event. Events are charged from a size of largeEvent.
	eventFactor = 2
	largeEvent  = 64 << 10
)

// budget limits the memory of all merged lists and of events that wait for clients. One user may use half of it.
type budget struct {
	max int64

	mu    sync.Mutex // guards bytes and users
	bytes int64
	users map[string]int64
}

// take charges n bytes to a user. It returns false if that exceeds a limit.
func (b *budget) take(user string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+n > b.max || b.users[user]+n > b.max/2 {
		return false
	}
	b.bytes += n
	b.users[user] += n
	return true
}

// give returns n bytes charged by take.
func (b *budget) give(user string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= n
	if b.users[user] -= n; b.users[user] <= 0 {
		delete(b.users, user)
	}
}

// errBusy returns the response to a list, or the end of a watch, that exceeds the budget.
func errBusy() error {
	return apierrors.NewTooManyRequests("the lists that are being merged take all of the memory that they may have; list in parts, with limit, or try again", 1)
}

// room is the memory of one list, or of the events of one watch that wait for its client.
type room struct {
	budget    *budget
	user      string
	limit     int64        // of a list
	remaining atomic.Int64 // bytes of the limit that may still be read
	taken     atomic.Int64
}

func (m *Merger) newRoom(user string) *room {
	r := &room{budget: &m.budget, user: user, limit: min(maxBytes, m.budget.max/2/byteFactor)}
	r.remaining.Store(r.limit)
	return r
}

// read charges n bytes of a list.
func (r *room) read(n int64) error {
	if r.remaining.Add(-n) < 0 {
		return errTooLarge
	}
	return r.take(byteFactor * n)
}

func (r *room) take(n int64) error {
	if !r.budget.take(r.user, n) {
		return errBusy()
	}
	r.taken.Add(n)
	return nil
}

// give returns n bytes charged by take.
func (r *room) give(n int64) {
	if n > 0 {
		r.taken.Add(-n)
		r.budget.give(r.user, n)
	}
}

// free returns all bytes, before another attempt or at the end.
func (r *room) free() {
	r.give(r.taken.Load())
	r.remaining.Store(r.limit)
}
