package run

import (
	"sync"
	"time"
)

// DelayQueue calls Expire for each item that has been in the queue for a fixed time. All items wait equally long and therefore
// expire in the order of their insertion, so that a list and one timer suffice. An item is embedded in the waiting object, so
// that insertion and removal do not allocate. The zero value with Delay and Expire set is ready for use.
type DelayQueue[T any] struct {
	// Delay is how long an item waits. Slack is the maximum additional time, so that one wakeup serves many items.
	Delay, Slack time.Duration
	// Expire is called without locks held. An item that is removed at the same moment may still expire.
	Expire func(T)

	mu    sync.Mutex // guards the fields below, and the items
	items List[delayedValue[T]]
	timer *time.Timer
	armed bool // timer is set
}

// Delayed is an item of a DelayQueue. The zero value is not in a queue.
type Delayed[T any] struct{ node Node[delayedValue[T]] }

type delayedValue[T any] struct {
	value   T
	expires time.Time
}

// Add adds an item that is not in a queue. now is the current time.
func (q *DelayQueue[T]) Add(d *Delayed[T], value T, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.node.Value = delayedValue[T]{value, now.Add(q.Delay)}
	q.items.Append(&d.node)
	if !q.armed {
		q.arm(q.Delay + q.Slack)
	}
}

// Remove removes an item if it is still in the queue.
func (q *DelayQueue[T]) Remove(d *Delayed[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(&d.node)
}

// Empty reports whether the queue has no items.
func (q *DelayQueue[T]) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.First() == nil
}

// remove is called with mu held. It clears the item, so that the item does not retain its value.
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

// take removes the first item if it is due. Otherwise it sets the timer for that item.
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
