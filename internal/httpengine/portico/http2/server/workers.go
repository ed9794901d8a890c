package server

import (
	"sync"
	"time"
)

// workerIdleTime is how long, or up to twice as long, a worker waits for a request.
const workerIdleTime = 5 * time.Second

// workerPool contains the idle workers. The number of streams limits the busy ones.
type workerPool struct {
	maxIdle int

	mu     sync.Mutex // guards the fields below
	idle   []*worker  // the most recently used is last
	round  int
	timer  *time.Timer // ends a round; nil if no worker waits
	closed bool
}

// worker runs handlers, one after the other. fields is lent to the response that it writes.
type worker struct {
	pool   *workerPool
	work   chan *stream
	round  int     // in which it became idle
	next   *stream // runs now, or next
	fields []responseField
}

// run runs the handler of st on a worker.
func (p *workerPool) run(st *stream) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		w := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		w.work <- st // does not block
		return
	}
	p.mu.Unlock()
	go newWorker(p, st).loop()
}

// newWorker returns a worker that runs st first.
func newWorker(p *workerPool, st *stream) *worker {
	return &worker{pool: p, work: make(chan *stream, 1), next: st}
}

func (w *worker) loop() {
	defer func() {
		if st := w.next; st != nil { // a handler ended the goroutine (runtime.Goexit)
			w.pool.run(st)
		}
	}()
	for w.next != nil {
		st := w.next
		w.next = nil
		st.run(w)
		if w.next == nil && w.pool.park(w) {
			w.next = <-w.work // nil ends the worker
		}
	}
}

// park makes w idle, unless enough workers are idle.
func (p *workerPool) park(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.maxIdle {
		return false
	}
	w.round = p.round
	p.idle = append(p.idle, w)
	if p.timer == nil {
		p.timer = time.AfterFunc(workerIdleTime, p.endRound)
	}
	return true
}

// endRound ends the workers that were idle for a whole round, and begins the next.
func (p *workerPool) endRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && p.idle[n].round < p.round { // sorted by idle time, longest first
		n++
	}
	p.dismiss(n)
	p.round++
	if len(p.idle) == 0 {
		p.timer = nil
		return
	}
	p.timer.Reset(workerIdleTime)
}

// dismiss ends the n workers with the longest idle time. The caller must hold mu.
func (p *workerPool) dismiss(n int) {
	for _, w := range p.idle[:n] {
		w.work <- nil
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
}

// close ends the idle workers now, and the others when their handlers have returned.
func (p *workerPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.dismiss(len(p.idle))
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
