package run

import (
	"sync"
	"time"
)

// DelayQueue calls Expire for each item that has been in the queue for a fixed time. All items wait equally long, so that
// they expire in the order in which they were added: a list and one timer are enough. An item is a part of what waits, so
// that adding and removing it allocates nothing. The zero value with Delay and Expire set is ready for use.
type DelayQueue[T any] struct {
	// Delay is how long an item waits, and Slack how much longer at most, so that one wakeup serves many items.
	Delay, Slack time.Duration
	// Expire is called without locks held. An item that is removed at the same moment may still expire.
	Expire func(T)

	mu    sync.Mutex // guards what follows, and the items
	items List[delayedValue[T]]
	timer *time.Timer
	armed bool // timer is set
}

// Delayed is an item of a DelayQueue. The zero value is in no queue.
type Delayed[T any] struct{ node Node[delayedValue[T]] }

type delayedValue[T any] struct {
	value   T
	expires time.Time
}

// Add adds an item, which is in no queue, at the present time.
func (q *DelayQueue[T]) Add(d *Delayed[T], value T, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.node.Value = delayedValue[T]{value, now.Add(q.Delay)}
	q.items.Append(&d.node)
	if !q.armed {
		q.arm(q.Delay + q.Slack)
	}
}

// Remove removes an item that is still in the queue.
func (q *DelayQueue[T]) Remove(d *Delayed[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(&d.node)
}

// Empty reports whether no item waits.
func (q *DelayQueue[T]) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.First() == nil
}

// remove is called with mu held. An item that is in no queue keeps nothing alive.
func (q *DelayQueue[T]) remove(n *Node[delayedValue[T]]) {
	q.items.Remove(n)
	n.Value = delayedValue[T]{}
}

// arm is called with mu held.
func (q *DelayQueue[T]) arm(d time.Duration) {
	q.armed = true
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.expire)
	} else {
		q.timer.Reset(d)
	}
}

// expire is called by the timer.
func (q *DelayQueue[T]) expire() {
	for now := time.Now(); ; {
		value, ok := q.take(now)
		if !ok {
			return
		}
		q.Expire(value)
	}
}

// take removes the first item if it is due, and sets the timer for the next one if it is not.
func (q *DelayQueue[T]) take(now time.Time) (value T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.items.First()
	if n == nil {
		q.armed = false
		return value, false
	}
	if now.Before(n.Value.expires) {
		q.arm(time.Until(n.Value.expires) + q.Slack)
		return value, false
	}
	value = n.Value.value
	q.remove(n)
	return value, true
}
