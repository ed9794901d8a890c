package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Without a quorum, etcd does not respond to any call that requires consensus. Each such call would wait until its deadline,
// and hold the seats and the memory of its request. Therefore etcd counts as lost if no member has responded for lostAfter.
// While it is lost, no call begins, and running calls fail. Watches wait: they do not miss events, because etcd keeps the
// events that they have not received.
const (
	lostAfter = 3 * time.Second
	// judgeInterval is the interval between checks of the members. Time is counted in these ticks, so that a suspension of this
	// process counts for at most one tick.
	judgeInterval = 250 * time.Millisecond
	// resumeInterval is the minimum time between two attempts to resume a watch.
	resumeInterval = 500 * time.Millisecond
)

// QuorumError reports that no member of etcd responds.
type QuorumError struct {
	// Since is when a member last responded.
	Since time.Time
	// Begun reports that the call was running and may have been executed. Otherwise it was not sent.
	Begun bool
}

func (e *QuorumError) Error() string {
	return fmt.Sprintf("no member of etcd has answered since %s: they have no quorum, or are not reached from here", e.Since.UTC().Format(time.RFC3339))
}

// quorum tracks whether etcd responds.
type quorum struct {
	log *zap.Logger

	mu           sync.Mutex // guards the fields below
	ticks        int        // since the last response
	lastResponse time.Time  // time of the last response
	having       context.Context
	lose         context.CancelFunc
	changed      chan struct{} // closed and replaced when etcd is lost or recovers
}

func newQuorum(log *zap.Logger) *quorum {
	q := &quorum{log: log, lastResponse: time.Now(), changed: make(chan struct{})}
	q.having, q.lose = context.WithCancel(context.Background())
	return q
}

// loseAtStart marks etcd as lost at a start without etcd, when no member has responded since this process started.
func (q *quorum) loseAtStart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose()
	q.wake()
}

// lastAnswer returns when a member last responded.
func (q *quorum) lastAnswer() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastResponse
}

// answered records that a member has responded to a read through consensus, or to any other call.
func (q *quorum) answered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.having.Err() != nil {
		q.log.Info("etcd is available again", zap.Duration("after", time.Since(q.lastResponse).Round(time.Millisecond)))
		q.having, q.lose = context.WithCancel(context.Background())
		q.wake()
	}
	q.ticks, q.lastResponse = 0, time.Now()
}

// tick must be called every judgeInterval.
func (q *quorum) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticks++
	if q.ticks < int(lostAfter/judgeInterval) || q.having.Err() != nil {
		return
	}
	q.log.Warn("no etcd member responds; serving only reads from caches and requests for extension servers", zap.Time("since", q.lastResponse))
	q.lose()
	q.wake()
}

// wake is called with mu held.
func (q *quorum) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// held returns a context that ends when etcd is lost, and an error if it is lost now.
func (q *quorum) held() (context.Context, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.having.Err() != nil {
		return q.having, &QuorumError{Since: q.lastResponse}
	}
	return q.having, nil
}

// await waits until etcd is not lost. It returns an error if ctx ended first.
func (q *quorum) await(ctx context.Context) error {
	for {
		q.mu.Lock()
		lost, changed := q.having.Err() != nil, q.changed
		q.mu.Unlock()
		if !lost {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin returns a context for a call that ends when etcd is lost. end must be called with the call's error, and returns the
// error to report.
func (q *quorum) begin(ctx context.Context) (_ context.Context, end func(error) error, err error) {
	having, err := q.held()
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(having, cancel)
	return bounded, func(err error) error {
		stop()
		cancel()
		switch {
		case err == nil:
			q.reset()
		case having.Err() != nil && ctx.Err() == nil:
			q.mu.Lock()
			defer q.mu.Unlock()
			return &QuorumError{Since: q.lastResponse, Begun: true}
		}
		return err
	}, nil
}

// reset restarts the count of ticks after a successful call.
func (q *quorum) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.having.Err() == nil {
		q.ticks, q.lastResponse = 0, time.Now()
	}
}

// quorumKV makes calls only while etcd is not lost.
type quorumKV struct {
	clientv3.KV
	quorum *quorum
}

func ask[A any](ctx context.Context, q *quorum, call func(context.Context) (A, error)) (A, error) {
	var none A
	ctx, end, err := q.begin(ctx)
	if err != nil {
		return none, err
	}
	answer, err := call(ctx)
	return answer, end(err)
}

func (k *quorumKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return ask(ctx, k.quorum, func(ctx context.Context) (*clientv3.PutResponse, error) { return k.KV.Put(ctx, key, value, opts...) })
}

func (k *quorumKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return ask(ctx, k.quorum, func(ctx context.Context) (*clientv3.GetResponse, error) { return k.KV.Get(ctx, key, opts...) })
}

// GetStream does not end when etcd is lost, because its reader has a deadline.
func (k *quorumKV) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if _, err := k.quorum.held(); err != nil {
		return nil, err
	}
	return k.KV.GetStream(ctx, key, opts...)
}

func (k *quorumKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return ask(ctx, k.quorum, func(ctx context.Context) (*clientv3.DeleteResponse, error) { return k.KV.Delete(ctx, key, opts...) })
}

func (k *quorumKV) Compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return ask(ctx, k.quorum, func(ctx context.Context) (*clientv3.CompactResponse, error) { return k.KV.Compact(ctx, rev, opts...) })
}

func (k *quorumKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return ask(ctx, k.quorum, func(ctx context.Context) (clientv3.OpResponse, error) { return k.KV.Do(ctx, op) })
}

func (k *quorumKV) Txn(ctx context.Context) clientv3.Txn {
	bounded, end, err := k.quorum.begin(ctx)
	if err != nil {
		return lostTxn{err}
	}
	return &quorumTxn{txn: k.KV.Txn(bounded), end: end}
}

// quorumTxn is a transaction that ends when etcd is lost.
type quorumTxn struct {
	txn clientv3.Txn
	end func(error) error
}

func (t *quorumTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.txn = t.txn.If(cs...)
	return t
}

func (t *quorumTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.txn = t.txn.Then(ops...)
	return t
}

func (t *quorumTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.txn = t.txn.Else(ops...)
	return t
}

func (t *quorumTxn) Commit() (*clientv3.TxnResponse, error) {
	answer, err := t.txn.Commit()
	return answer, t.end(err)
}

// lostTxn is a transaction that was started while etcd was lost.
type lostTxn struct{ err error }

func (t lostTxn) If(...clientv3.Cmp) clientv3.Txn        { return t }
func (t lostTxn) Then(...clientv3.Op) clientv3.Txn       { return t }
func (t lostTxn) Else(...clientv3.Op) clientv3.Txn       { return t }
func (t lostTxn) Commit() (*clientv3.TxnResponse, error) { return nil, t.err }

// resumingWatcher resumes watches that end because a member has no leader. Otherwise every watch cache would list repeatedly
// while the quorum is lost, and end the watches of its clients.
type resumingWatcher struct {
	clientv3.Watcher
	quorum *quorum
}

func (w *resumingWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	next := clientv3.OpGet(key, opts...).Rev()
	events := w.Watcher.Watch(ctx, key, opts...)
	if next == 0 {
		return events // it does not specify a start revision
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for {
			end := forward(ctx, events, out, &next)
			if end == nil {
				return
			}
			if !errors.Is(end.Err(), rpctypes.ErrNoLeader) {
				send(ctx, out, *end)
				return
			}
			if !pause(ctx, resumeInterval) || w.quorum.await(ctx) != nil {
				return
			}
			events = w.Watcher.Watch(ctx, key, append(opts[:len(opts):len(opts)], clientv3.WithRev(next))...)
		}
	}()
	return out
}

// forward forwards responses until one has an error, and returns that response. It returns nil if the watch or ctx has ended.
// next is the next revision that the watch has not received.
func forward(ctx context.Context, events clientv3.WatchChan, out chan<- clientv3.WatchResponse, next *int64) *clientv3.WatchResponse {
	for response := range events {
		if response.Err() != nil {
			return &response
		}
		if !send(ctx, out, response) {
			return nil
		}
		if n := len(response.Events); n > 0 {
			*next = response.Events[n-1].Kv.ModRevision + 1
		} else if response.IsProgressNotify() {
			*next = response.Header.Revision + 1
		}
	}
	return nil
}

func send(ctx context.Context, out chan<- clientv3.WatchResponse, response clientv3.WatchResponse) bool {
	select {
	case out <- response:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits, and returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
