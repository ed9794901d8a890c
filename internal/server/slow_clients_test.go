package server

import (
	"context"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// slowWriter is a client that takes so much of an answer each tenth of a second, until its write deadline.
type slowWriter struct {
	http.ResponseWriter
	rate int64

	mu    sync.Mutex // guards what follows
	taken int64
	cut   bool
}

// Write implements io.Writer. A rate of 0 is a client that takes nothing.
func (w *slowWriter) Write(p []byte) (int, error) {
	for n := int64(0); n < int64(len(p)); n += w.rate {
		time.Sleep(100 * time.Millisecond) // of the bubble's clock
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

func (w *slowWriter) SetWriteDeadline(time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	return nil
}

// seatGiven notes when a seat was given back.
type seatGiven struct{ at time.Time }

func (s *seatGiven) Release() { s.at = time.Now() }

// slowRequest is one that is being answered.
type slowRequest struct {
	ctx    *requestContext
	seat   seatGiven
	began  time.Time
	ended  time.Time
	failed error
}

// answer has a request of a user answered with so many bytes, of which the client takes rate each tenth of a second.
func (c *slowClients) answer(all *sync.WaitGroup, name string, size int, rate int64, change func(*requestContext)) *slowRequest {
	r := &slowRequest{ctx: &requestContext{Context: filters.Context{Context: request.Context{Context: context.Background()}}}, began: time.Now()}
	s := r.ctx
	s.User = &user.DefaultInfo{Name: name}
	s.record.Seat = &r.seat
	s.response.ctx, s.response.slowClients, s.response.ResponseWriter = s, c, &slowWriter{rate: rate}
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

func TestD14ASeatIsGivenBackWhileAClientTakesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		size   int
		rate   int64
		change func(*requestContext)
		gives  bool
		ends   time.Duration // 0: when all is taken
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
					t.Errorf("seat given back %v, after %s", given, r.seat.at.Sub(r.began))
				}
				took := r.ended.Sub(r.began)
				switch {
				case test.ends == 0 && r.failed != nil:
					t.Errorf("broken off after %s: %v", took, r.failed)
				case test.ends > 0 && (r.failed == nil || took < test.ends || took > test.ends+time.Second):
					t.Errorf("after %s: %v, want it broken off after %s", took, r.failed, test.ends)
				}
				if left := c.used.Total(); left != 0 {
					t.Errorf("%d bytes are still charged", left)
				}
				time.Sleep(time.Second)
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.first != nil || c.timerSet {
					t.Error("somebody is still looked after")
				}
			})
		})
	}
}

// Answers that nobody takes hold so much memory and no more, and one user's leave room for others'.
func TestD14WhatUntakenAnswersHoldIsBounded(t *testing.T) {
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
		crawl := c.answer(&all, "mallory", size, 8<<10, deadline) // of the same user, and honest
		time.Sleep(4 * slowTimeout)
		synctest.Wait()
		if n := count(attack, waits); n*size > slowBudget*9/10 || n == 0 {
			t.Errorf("%d answers of 1 MiB of one user wait", n)
		}
		if n := count(attack, func(r *slowRequest) bool { return waits(r) && r.seat.at.IsZero() }); n != 0 {
			t.Errorf("%d of them hold seats", n)
		}
		others := []*slowRequest{c.answer(&all, "jane", size, 0, deadline), c.answer(&all, "joe", size, 0, deadline)}
		time.Sleep(4 * slowTimeout)
		synctest.Wait()
		if n := count(others, func(r *slowRequest) bool { return waits(r) && !r.seat.at.IsZero() }); n != len(others) {
			t.Errorf("%d of %d others may wait", n, len(others))
		}
		all.Wait()
		if crawl.failed != nil {
			t.Errorf("an answer that is taken, if slowly: %v", crawl.failed)
		}
		if left := c.used.Total(); left != 0 {
			t.Errorf("%d bytes are still charged", left)
		}
	})
}
