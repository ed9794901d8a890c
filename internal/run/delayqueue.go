package run

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// DelayQueue calls Expire for each item that has been in the queue for a fixed time. All items wait equally long and therefore
// expire in the order of their insertion, so that a list and one timer suffice. There is more than one list, each with a lock and a
// timer, so that processors rarely wait for each other. An item is embedded in the waiting object, so that insertion and removal do
// not allocate. The zero value with Delay and Expire set is ready for use.
type DelayQueue[T any] struct {
	// Delay is how long an item waits. Slack is the maximum additional time, so that one wakeup serves many items.
	Delay, Slack time.Duration
	// Expire is called without locks held, possibly for several items at once. An item that is removed at the same moment may still
	// expire.
	Expire func(T)

	lists [maxLists]delayList[T]
}

const maxLists = 16

// lists is the number of lists in use: several for each processor, because a goroutine may be interrupted while it holds a lock.
var lists = min(maxLists, 4*runtime.NumCPU())

// delayList is one of the lists of a DelayQueue.
type delayList[T any] struct {
	mu    sync.Mutex // guards the fields below, and the items
	items List[delayedValue[T]]
	timer *time.Timer
	armed bool // timer is set

	_ [64]byte // no cache line has parts of two lists
}

// Delayed is an item of a DelayQueue. The zero value is not in a queue.
type Delayed[T any] struct {
	list *delayList[T] // to which it was added
	node Node[delayedValue[T]]
}

type delayedValue[T any] struct {
	value   T
	expires time.Time
}

// Add adds an item that is not in a queue. now is the current time.
func (q *DelayQueue[T]) Add(d *Delayed[T], value T, now time.Time) {
	l := &q.lists[rand.IntN(lists)]
	l.mu.Lock()
	defer l.mu.Unlock()
	d.list = l
	d.node.Value = delayedValue[T]{value, now.Add(q.Delay)}
	l.items.Append(&d.node)
	if !l.armed {
		q.arm(l, q.Delay+q.Slack)
	}
}

// Remove removes an item if it is still in the queue. It must not be called while Add adds the item.
func (q *DelayQueue[T]) Remove(d *Delayed[T]) {
	if d.list == nil {
		return
	}
	d.list.mu.Lock()
	defer d.list.mu.Unlock()
	d.list.remove(&d.node)
}

// Empty reports whether the queue has no items.
func (q *DelayQueue[T]) Empty() bool {
	for i := range q.lists {
		if !q.lists[i].empty() {
			return false
		}
	}
	return true
}

func (l *delayList[T]) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items.First() == nil
}

// remove is called with mu held. It clears the item, so that the item does not retain its value.
func (l *delayList[T]) remove(n *Node[delayedValue[T]]) {
	l.items.Remove(n)
	n.Value = delayedValue[T]{}
}

// arm is called with the lock of the list held.
func (q *DelayQueue[T]) arm(l *delayList[T], d time.Duration) {
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(d, func() { q.expire(l) })
	} else {
		l.timer.Reset(d)
	}
}

// expire is called by the timer of a list.
func (q *DelayQueue[T]) expire(l *delayList[T]) {
	for now := time.Now(); ; {
		value, ok := q.take(l, now)
		if !ok {
			return
		}
		q.Expire(value)
	}
}

// take removes the first item if it is due. Otherwise it sets the timer for that item.
func (q *DelayQueue[T]) take(l *delayList[T], now time.Time) (value T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.items.First()
	if n == nil {
		l.armed = false
		return value, false
	}
	if now.Before(n.Value.expires) {
		q.arm(l, time.Until(n.Value.expires)+q.Slack)
		return value, false
	}
	value = n.Value.value
	l.remove(n)
	return value, true
}
