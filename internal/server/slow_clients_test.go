package server

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/request"
)

// slowWriter is a client that reads a fixed number of bytes each tenth of a second, until its write deadline.
type slowWriter struct {
	engine.ResponseWriter // nil: the other methods are not called
	rate                  int64

	mu    sync.Mutex // guards the fields below
	taken int64
	cut   bool
}

// Write implements io.Writer. A rate of 0 is a client that does not read.
func (w *slowWriter) Write(p []byte) (int, error) {
	for n := int64(0); n < int64(len(p)); n += w.rate {
		time.Sleep(100 * time.Millisecond) // on the bubble's clock
		w.mu.Lock()
		w.taken += w.rate
		cut := w.cut
		w.mu.Unlock()
		if cut {
			return int(n), os.ErrDeadlineExceeded
		}
	}
	return len(p), nil
}

func (w *slowWriter) BytesWritten() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken
}

func (w *slowWriter) ChargeMemory(int64) {}

func (w *slowWriter) SetWriteDeadline(time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	return nil
}

// seatGiven records when a seat was released.
type seatGiven struct{ at time.Time }

func (s *seatGiven) Release() { s.at = time.Now() }

// slowRequest is a request with an unfinished response.
type slowRequest struct {
	ctx    *requestContext
	seat   seatGiven
	began  time.Time
	ended  time.Time
	failed error
}

// answer writes a response of size bytes to a user's request. The client reads rate bytes each tenth of a second.
func (c *slowClients) answer(all *sync.WaitGroup, name string, size int, rate int64, change func(*requestContext)) *slowRequest {
	r := &slowRequest{ctx: &requestContext{Context: filters.Context{Context: request.Context{Context: context.Background()}}}, began: time.Now()}
	s := r.ctx
	s.User = &user.DefaultInfo{Name: name}
	s.record.Seat = &r.seat
	client := &slowWriter{rate: rate}
	s.response.ctx, s.response.slowClients, s.response.ResponseWriter, s.response.engine = s, c, client, client
	if change != nil {
		change(s)
	}
	all.Go(func() {
		_, r.failed = s.response.Write(make([]byte, size))
		r.ended = time.Now()
		c.forget(&s.response)
	})
	return r
}

func TestD14SlowReaderReleasesItsSeat(t *testing.T) {
	for name, test := range map[string]struct {
		size   int
		rate   int64
		change func(*requestContext)
		gives  bool
		ends   time.Duration // 0: when everything is read
	}{
		"it takes nothing":     {size: 1 << 20, change: func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Minute)) }, gives: true, ends: time.Minute},
		"it drips":             {size: 1 << 20, rate: 1, change: func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Minute)) }, gives: true, ends: time.Minute},
		"the answer came late": {size: 1 << 20, rate: 1, change: func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Second)) }, gives: true, ends: 30 * time.Second},
		"it is slow":           {size: 1 << 20, rate: 16 << 10, change: func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Minute)) }, gives: true},
		"it is quick":          {size: 16 << 20, rate: 1 << 20, change: func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Minute)) }},
		"the answer is a backend's, and goes on": {size: 1 << 20, rate: 1 << 10, gives: true, change: func(s *requestContext) {
			s.SetDeadline(time.Now().Add(time.Minute))
			s.record.Proxied = true
		}},
		"it is a watch": {size: 10_000, rate: 10, gives: true, change: func(s *requestContext) { s.Info = &apirequest.RequestInfo{Verb: "watch"} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSlowClients(0, slowBudget)
				var all sync.WaitGroup
				r := c.answer(&all, "mallory", test.size, test.rate, test.change)
				all.Wait()
				if given := !r.seat.at.IsZero(); given != test.gives || given && r.seat.at.Sub(r.began) > 4*slowCheckInterval {
					t.Errorf("seat released = %v after %s, want %v within %s", given, r.seat.at.Sub(r.began), test.gives, 4*slowCheckInterval)
				}
				took := r.ended.Sub(r.began)
				switch {
				case test.ends == 0 && r.failed != nil:
					t.Errorf("response broke off after %s: %v, want no error", took, r.failed)
				case test.ends > 0 && (r.failed == nil || took < test.ends || took > test.ends+time.Second):
					t.Errorf("response ended after %s with the error %v, want it broken off after %s", took, r.failed, test.ends)
				}
				if left := c.used.Total(); left != 0 {
					t.Errorf("charged memory after the response = %d bytes, want 0", left)
				}
				time.Sleep(time.Second)
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.first != nil || c.timerSet {
					t.Errorf("slow clients after the response: present %t, timer set %t, want none", c.first != nil, c.timerSet)
				}
			})
		})
	}
}

// The memory of unread responses is limited, and one user's responses leave room for the responses of other users.
func TestD14UnreadResponseMemoryIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowClients(0, slowBudget)
		var all sync.WaitGroup
		const size = 1 << 20
		deadline := func(s *requestContext) { s.SetDeadline(time.Now().Add(time.Minute)) }
		count := func(requests []*slowRequest, is func(*slowRequest) bool) (n int) {
			for _, r := range requests {
				if is(r) {
					n++
				}
			}
			return n
		}
		waits := func(r *slowRequest) bool { return r.ended.IsZero() }
		var attack []*slowRequest
		for range 1000 {
			attack = append(attack, c.answer(&all, "mallory", size, 0, deadline))
		}
		crawl := c.answer(&all, "mallory", size, 8<<10, deadline) // a slow client of the same user
		time.Sleep(4 * slowTimeout)
		synctest.Wait()
		if n := count(attack, waits); n*size > slowBudget*9/10 || n == 0 {
			t.Errorf("%d waiting responses of 1 MiB of one user, want 1 to %d", n, slowBudget*9/10/size)
		}
		if n := count(attack, func(r *slowRequest) bool { return waits(r) && r.seat.at.IsZero() }); n != 0 {
			t.Errorf("%d waiting responses of one user hold seats, want 0", n)
		}
		others := []*slowRequest{c.answer(&all, "jane", size, 0, deadline), c.answer(&all, "joe", size, 0, deadline)}
		time.Sleep(4 * slowTimeout)
		synctest.Wait()
		if n := count(others, func(r *slowRequest) bool { return waits(r) && !r.seat.at.IsZero() }); n != len(others) {
			t.Errorf("%d waiting responses of other users without seats, want %d", n, len(others))
		}
		all.Wait()
		if crawl.failed != nil {
			t.Errorf("response to the slow client failed: %v, want no error", crawl.failed)
		}
		if left := c.used.Total(); left != 0 {
			t.Errorf("charged memory after all responses = %d bytes, want 0", left)
		}
	})
}
