package rota

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Work is one turn: it does what there is to do and says how long to rest before the next. It must return when ctx ends,
// which is when the turn's owner has left or the rota ends.
type Work func(ctx context.Context) (rest time.Duration)

const (
	// grain is to what turns that are far away are moved, so that a wakeup serves many of them. They come sooner by as much
	// and never later.
	grain = 250 * time.Millisecond
	// far is the rest from which that does not matter.
	far = 20 * grain
)

// Rota keeps the turns. New makes one; it is safe for concurrent use.
type Rota struct {
	origin time.Time
	// sooner tells Run that a turn came to the head of the queue.
	sooner  chan struct{}
	running sync.WaitGroup // turns

	mu    sync.Mutex // protects what follows, and what is in turns
	queue queue
}

// New returns a Rota without turns.
func New() *Rota {
	return &Rota{origin: time.Now(), sooner: make(chan struct{}, 1)}
}

// Turn is one's place in a rota. Its work is never done twice at a time.
type Turn struct {
	rota *Rota
	work Work

	// What follows is protected by the rota.
	at      time.Time // of the next turn, while place is not nowhere
	place   int       // in the queue
	began   time.Time // the latest turn; zero: there was none
	cancel  context.CancelFunc
	hurried bool // while the work was being done
	gap     time.Duration
	left    bool
}

// nowhere is the place of a turn whose work is being done, or whose owner has left.
const nowhere = -1

// Join gives work a turn at once, and then whenever it has rested for as long as it said.
func (r *Rota) Join(work Work) *Turn {
	t := &Turn{rota: r, work: work, at: time.Now(), place: nowhere}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enqueue(t)
	return t
}

// Hurry makes the next turn come as soon as gap has passed since the latest one began, unless it comes sooner anyway. One
// that is being done is not the next.
func (t *Turn) Hurry(gap time.Duration) {
	r := t.rota
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case t.left:
	case t.place == nowhere && t.hurried:
		t.gap = min(t.gap, gap)
	case t.place == nowhere:
		t.hurried, t.gap = true, gap
	default:
		if at := t.after(gap); at.Before(t.at) {
			heap.Remove(&r.queue, t.place)
			t.at = at
			r.enqueue(t)
		}
	}
}

// Leave ends the context of a turn that is being done, and there are no more.
func (t *Turn) Leave() {
	r := t.rota
	r.mu.Lock()
	defer r.mu.Unlock()
	t.left = true
	if t.cancel != nil {
		t.cancel()
	}
	if t.place != nowhere {
		heap.Remove(&r.queue, t.place)
	}
}

// Run gives turns until ctx ends, and returns when none is being done any more. It is called once.
func (r *Rota) Run(ctx context.Context) {
	defer r.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if next, any := r.give(ctx); any {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-r.sooner:
		case <-timer.C:
		}
	}
}

// give starts every turn that is due, and says when the next one is.
func (r *Rota) give(ctx context.Context) (next time.Time, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.queue) > 0 && !r.queue[0].at.After(now) {
		t := heap.Pop(&r.queue).(*Turn)
		t.began, t.hurried = now, false
		var turn context.Context
		turn, t.cancel = context.WithCancel(ctx)
		r.running.Go(func() { r.take(turn, t) })
	}
	if len(r.queue) == 0 {
		return time.Time{}, false
	}
	return r.queue[0].at, true
}

// take is one turn.
func (r *Rota) take(ctx context.Context, t *Turn) {
	rest := t.work(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.cancel()
	t.cancel = nil
	if t.left {
		return
	}
	t.at = time.Now().Add(rest)
	if rest >= far {
		t.at = r.origin.Add(t.at.Sub(r.origin).Truncate(grain))
	}
	if t.hurried {
		if at := t.after(t.gap); at.Before(t.at) {
			t.at = at
		}
	}
	r.enqueue(t)
}

// after is the time from which the next turn may be when gap must lie between the beginnings of both. The caller holds mu.
func (t *Turn) after(gap time.Duration) time.Time {
	now := time.Now()
	if t.began.IsZero() {
		return now
	}
	if at := t.began.Add(gap); at.After(now) {
		return at
	}
	return now
}

// enqueue puts a turn where it belongs. The caller holds mu.
func (r *Rota) enqueue(t *Turn) {
	heap.Push(&r.queue, t)
	if t.place != 0 {
		return
	}
	select {
	case r.sooner <- struct{}{}:
	default: // Run has been told already and did not get to it yet
	}
}

// queue is a heap by time.
type queue []*Turn

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*Turn)
	t.place = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.place = nowhere
	return t
}
