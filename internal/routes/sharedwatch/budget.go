package sharedwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// MaxBytes is the default of Config.MaxBytes.
const MaxBytes = 128 << 20

const (
	// maxLists is the default of Config.MaxLists.
	maxLists = 8
	// listSlotTimeout limits the wait for another list to end.
	listSlotTimeout = 5 * time.Second
	// readFactor is the number of bytes charged for each byte of a list or of a large event while it is read, because it is
	// buffered and copied.
	readFactor = 2
	// largeLine is the minimum size of an event that is charged while it is read.
	largeLine = 64 << 10
)

var (
	// errTooMuch is the error for a collection, or an event, that is too large to be shared.
	errTooMuch = errors.New("it is too large to be shared")
	// errShare is the error for a collection that is too large for the remaining share of a user.
	errShare = fmt.Errorf("the user has its share of shared watches: %w", errTooMuch)
	// errListsBusy is the error for a list that waited too long for other lists to end.
	errListsBusy = errors.New("too many lists of the extension server are in progress")
)

// usage is the usage of one user: the streams that it owns, and the bytes of these and of the reads for its clients.
// Guarded by Watches.mu.
type usage struct {
	streams int
	bytes   int64
}

// share is the part of a limit that one user may use.
func share[T int | int64](bound T) T { return max(1, bound/2) }

// account adds streams and bytes to the usage of a user. The caller must hold mu.
func (s *Watches) account(user string, streams int, bytes int64) {
	u := s.users[user]
	u.streams += streams
	u.bytes += bytes
	s.bytes += bytes
	if s.users[user] = u; u == (usage{}) {
		delete(s.users, user)
	}
}

// fits returns an error if a user must not use n more bytes. alone is the part of them for one collection. The caller must
// hold mu.
func (s *Watches) fits(user string, n, alone int64) error {
	switch {
	case alone > share(s.config.MaxBytes), s.bytes+n > s.config.MaxBytes:
		return errTooMuch
	case s.users[user].bytes+n > share(s.config.MaxBytes):
		return errShare
	}
	return nil
}

// reservation is memory that a stream uses while it reads for a user.
type reservation struct {
	stream *stream
	user   string
	bytes  int64
	// begun is set for events of a watch that clients follow. They evict other streams if the budget is used up.
	begun bool
}

// add reserves n more bytes.
func (r *reservation) add(n int64) error {
	s := r.stream.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.begun {
		if err := s.fits(r.user, n, r.bytes+n); err != nil {
			return err
		}
	}
	s.account(r.user, 0, n)
	r.bytes += n
	r.stream.reading += n
	if r.begun {
		return s.makeRoom(r.stream)
	}
	return nil
}

func (r *reservation) free() {
	s := r.stream.watches
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(r.user, 0, -r.bytes)
	r.stream.reading -= r.bytes
	r.bytes = 0
}

// reservingReader reserves memory for all bytes that it reads.
type reservingReader struct {
	io.Reader
	reservation *reservation
	remaining   int64
}

func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.remaining -= int64(n); r.remaining < 0 {
		return 0, errTooMuch
	}
	if reserveErr := r.reservation.add(readFactor * int64(n)); reserveErr != nil {
		return 0, reserveErr
	}
	return n, err
}

// holdObjects charges the objects that a stream has just listed for a client. The user of the client becomes the owner of
// the stream. An error means that the budget is used up, and the caller must drop the objects.
func (s *Watches) holdObjects(t *stream, user string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.evicted {
		return errTooMuch
	}
	if err := s.fits(user, size, size); err != nil {
		return err
	}
	s.account(t.owner, -1, -t.held)
	s.account(user, 1, t.held+size)
	t.owner = user
	t.held += size
	return nil
}

// charge charges the objects that a stream keeps, and an event that exceeds the space for events. An error means that the
// stream must end.
func (s *Watches) charge(t *stream) error {
	t.mu.RLock()
	size := t.history.size + max(0, t.history.bytes-t.history.maxBytes)
	t.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.evicted {
		return errTooMuch
	}
	s.account(t.owner, 0, size-t.held)
	t.held = size
	return s.makeRoom(t)
}

// makeRoom evicts streams until the limits hold after stream t has grown. An error means that t itself must end. It evicts
// the newest stream of the owner of t, if that user exceeds its share, or of the user with the most bytes otherwise. The
// caller must hold mu.
func (s *Watches) makeRoom(t *stream) error {
	for !t.evicted {
		user := t.owner
		if s.users[user].bytes <= share(s.config.MaxBytes) {
			if s.bytes <= s.config.MaxBytes {
				return nil
			}
			user = s.largestUser()
		}
		newest := s.newestOf(user)
		if newest == nil { // its reads are ending
			return nil
		}
		s.evict(newest)
	}
	return errTooMuch
}

// largestUser returns the user with the most bytes. The caller must hold mu.
func (s *Watches) largestUser() (name string) {
	most := int64(-1)
	for user, u := range s.users {
		if u.bytes > most {
			name, most = user, u.bytes
		}
	}
	return name
}

// newestOf returns the newest stream of a user that uses any bytes. The caller must hold mu.
func (s *Watches) newestOf(user string) (newest *stream) {
	for _, t := range s.streams {
		if t.owner == user && !t.evicted && t.held+t.reading > 0 && (newest == nil || t.number > newest.number) {
			newest = t
		}
	}
	return newest
}

// evict ends a stream. Its clients watch again. The caller must hold mu.
func (s *Watches) evict(t *stream) {
	s.account(t.owner, 0, -t.held)
	t.held = 0
	t.evicted = true
	t.cancel(errTooMuch)
}

// ringSize returns how many bytes of events a stream keeps. The events of all streams take half of MaxBytes, in addition to
// MaxBytes.
func (s *Watches) ringSize() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.config.MaxFrameBytes, s.config.MaxBytes/2/int64(max(1, len(s.streams))))
}

// listSlots contains the running lists of one APIRoute, by user. Guarded by Watches.mu.
type listSlots struct {
	total int
	users map[string]int
}

// enterList waits until another list of the APIRoute may begin for a user. One user has at most half of the lists, so that
// a single user or a slow server does not keep other users from listing. leave ends the list.
func (s *Watches) enterList(ctx context.Context, apiRoute, user string) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listSlotTimeout, errListsBusy)
	defer cancel()
	for {
		s.mu.Lock()
		slots := s.lists[apiRoute]
		if slots == nil {
			slots = &listSlots{users: map[string]int{}}
			s.lists[apiRoute] = slots
		}
		if slots.total < s.config.MaxLists && slots.users[user] < share(s.config.MaxLists) {
			slots.total++
			slots.users[user]++
			s.mu.Unlock()
			return func() { s.leaveList(slots, apiRoute, user) }, nil
		}
		ended := s.listEnded
		s.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Watches) leaveList(slots *listSlots, apiRoute, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slots.users[user]--; slots.users[user] == 0 {
		delete(slots.users, user)
	}
	if slots.total--; slots.total == 0 {
		delete(s.lists, apiRoute)
	}
	close(s.listEnded)
	s.listEnded = make(chan struct{})
}
