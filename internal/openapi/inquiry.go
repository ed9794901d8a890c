package openapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

const (
	// freshFor is how long the answer of a backend about version 2 is good for.
	freshFor = time.Minute
	// patience is how long a reader waits for backends that have not been heard, counted from when they were asked: a
	// backend that hangs costs its first readers this much, and nobody anything after that until it is asked again.
	patience = 1500 * time.Millisecond
	// diligence is how long a reader waits for us to read what backends have said in time.
	diligence = 10 * time.Second
	// readersAtOnce bounds the documents that are open at one time: one takes many times its size.
	readersAtOnce = 2
)

// inquiry is one question to one backend for its version 2 document. It goes on when nobody waits for it any more, so
// that a slow backend is in the next document.
type inquiry struct {
	backend remote.Backend
	wanted  []schema.GroupVersion
	etag    string
	began   time.Time
	// said is closed when the backend has answered or failed to, done when the answer has been taken in.
	said, done chan struct{}
}

// await returns when the inquiry is done, or nobody should wait for it any longer.
func (q *inquiry) await(ctx context.Context) {
	silence := time.NewTimer(time.Until(q.began.Add(patience)))
	defer silence.Stop()
	select {
	case <-q.said:
	case <-q.done:
		return
	case <-silence.C:
		return
	case <-ctx.Done():
		return
	}
	reading := time.NewTimer(time.Until(q.began.Add(diligence)))
	defer reading.Stop()
	select {
	case <-q.done:
	case <-reading.C:
	case <-ctx.Done():
	}
}

// inquire asks every backend that is available and has not been asked lately, and returns the inquiries that a reader
// should wait for. A backend that is known to be dead is not asked: what it last said stands.
func (s *swaggers) inquire() []*inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*inquiry
	for _, b := range s.table.Backends() {
		q := s.asked[b]
		if q == nil || q.isOld() {
			if q = s.newInquiry(b, q); q == nil {
				continue
			}
			s.asked[b] = q
			s.orders = append(s.orders, q)
		}
		if !q.isDone() && time.Since(q.began) < diligence {
			open = append(open, q)
		}
	}
	if len(s.orders) > 0 {
		select {
		case s.more <- struct{}{}:
		default: // it has been told already and did not get to it yet
		}
	}
	return open
}

func (q *inquiry) isDone() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

func (q *inquiry) isOld() bool { return q.isDone() && time.Since(q.began) > freshFor }

// newInquiry returns nil if there is nothing to ask the backend for. The caller holds mu.
func (s *swaggers) newInquiry(b remote.Backend, before *inquiry) *inquiry {
	q := &inquiry{backend: b, began: time.Now(), said: make(chan struct{}), done: make(chan struct{})}
	complete := true
	for _, r := range s.table.By(b) {
		if r.Available {
			q.wanted = append(q.wanted, r.GroupVersion)
			complete = complete && s.held[r.APIService].document != nil
		}
	}
	if before != nil && complete && slices.Equal(q.wanted, before.wanted) {
		q.etag = before.etag
	}
	if len(q.wanted) == 0 {
		return nil
	}
	return q
}

// run makes the inquiries that readers order, and drops the document when it has none. It returns when everything that
// it started has returned.
func (s *swaggers) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	look := time.NewTicker(idle / 10)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			s.dropIfIdle()
		case <-s.more:
			s.mu.Lock()
			orders := s.orders
			s.orders = nil
			s.mu.Unlock()
			for _, q := range orders {
				running.Go(func() { s.pursue(ctx, q) })
			}
		}
	}
}

func (s *swaggers) pursue(ctx context.Context, q *inquiry) {
	defer close(q.done)
	a, err := s.fetcher.Fetch(ctx, q.backend, remote.Request{
		Path: "/openapi/v2", ETag: q.etag, Accept: "application/json",
		As: aggregatorIdentity, Limit: maxDocument, Timeout: fetchTimeout,
	})
	close(q.said)
	if ctx.Err() != nil {
		return // we are stopping: that says nothing about the backend
	}
	held := q.etag
	q.etag = ""
	switch {
	case err != nil:
		s.learn(q, nil, err)
	case a.Code == http.StatusNotModified && held != "":
		q.etag = held
	case a.Code == http.StatusNotFound: // it does not speak version 2, which is its good right
		s.learn(q, nil, nil)
	case a.Code != http.StatusOK:
		s.learn(q, nil, fmt.Errorf("get /openapi/v2 from %s: answered %d", q.backend.Name(), a.Code))
	default:
		s.read(ctx, q, a)
	}
}

// read takes an answer apart, when it is its turn.
func (s *swaggers) read(ctx context.Context, q *inquiry, a *remote.Answer) {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	case <-ctx.Done():
		return
	}
	results, err := members(a.Body, q.wanted)
	if err == nil {
		q.etag = a.ETag
	}
	s.learn(q, results, err)
}

// learn takes in what a backend said. What it said badly, or not at all, leaves the last good members where they are.
func (s *swaggers) learn(q *inquiry, results map[schema.GroupVersion]heard, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.table.By(q.backend) {
		if !slices.Contains(q.wanted, r.GroupVersion) {
			continue
		}
		h, result := s.held[r.APIService], results[r.GroupVersion]
		err := failure
		if err == nil {
			err = result.err
		}
		trouble := ""
		if err != nil {
			trouble = publicReason(err)
		}
		if trouble != h.trouble && err != nil {
			s.log.Warn("OpenAPI v2 document is missing or old", zap.String("apiservice", r.APIService), zap.Error(err))
		}
		h.trouble = trouble
		if result.document != nil && (h.document == nil || h.document.Hash != result.document.Hash) {
			h.document = result.document
			s.revision++
		}
	}
}
