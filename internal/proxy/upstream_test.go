package proxy

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

func TestUpstreamContextEndsWithDeadlineOrClient(t *testing.T) {
	const second = time.Second
	type setup struct {
		deadline   time.Duration // of the request; 0: none
		withClient bool          // the deadline is one of the chain, which knows the client
		headers    time.Duration // when response headers are written; 0: never
		idle       time.Duration // granted then
		leaves     time.Duration // time at which the client leaves; 0: never
	}
	tests := []struct {
		name string
		setup
		ends   time.Duration // 0: not within an hour
		reason error
	}{
		{"no headers before the deadline", setup{deadline: 10 * second}, 10 * second, errHeaderTimeout},
		{"no headers before the deadline, with the client known", setup{deadline: 10 * second, withClient: true}, 10 * second, errHeaderTimeout},
		{"no deadline, no headers", setup{}, time.Minute, errHeaderTimeout},
		{"headers in time", setup{deadline: 10 * second, headers: 9 * second}, 0, nil},
		{"headers in time, with the client known", setup{deadline: 10 * second, withClient: true, headers: 9 * second}, 0, nil},
		{"no deadline, headers", setup{headers: second}, 0, nil},
		{"the client leaves before headers", setup{deadline: 10 * second, leaves: 3 * second}, 3 * second, errClientGone},
		{"the client leaves a stream", setup{deadline: 10 * second, headers: second, leaves: 5 * second}, 5 * second, errClientGone},
		{"the client leaves a stream that outlived the deadline", setup{deadline: 10 * second, withClient: true, headers: second, leaves: 500 * second}, 500 * second, errClientGone},
		{"the client leaves a watch", setup{headers: second, leaves: 500 * second}, 500 * second, errClientGone},
		{"a body of known length stops", setup{deadline: 10 * second, headers: second, idle: 30 * second}, 31 * second, errBodyIdle},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, leave := context.WithCancel(t.Context())
				defer leave()
				ctx := client
				switch {
				case test.withClient:
					limited := &request.Context{Context: client}
					limited.SetDeadline(time.Now().Add(test.deadline))
					defer limited.Finish()
					ctx = limited
				case test.deadline > 0:
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				x := &exchange{r: r, request: filters.RequestOf(r)}
				l := x.beginUpstream(time.Minute)
				defer l.release()
				if test.headers > 0 {
					defer time.AfterFunc(test.headers, func() { l.headersWritten(test.idle) }).Stop()
				}
				if test.leaves > 0 {
					defer time.AfterFunc(test.leaves, leave).Stop()
				}
				if _, ok := l.Deadline(); ok || l.Err() != nil {
					t.Errorf("Err() of a new context = %v or it has a deadline, want nil and none", l.Err())
				}
				ended := time.Duration(0)
				select {
				case <-l.Done():
					ended = time.Since(start)
				case <-time.After(time.Hour):
				}
				synctest.Wait()
				if ended != test.ends {
					t.Errorf("ended after %s, want %s", ended, test.ends)
				}
				if test.reason != nil && !errors.Is(l.wrap(context.Canceled), test.reason) {
					t.Errorf("reason of the end = %v, want %v", l.wrap(context.Canceled), test.reason)
				}
			})
		})
	}
}

// Each step of a body of known length starts a new idle period.
func TestUpstreamContextIdleTimeoutRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{r: r, request: filters.RequestOf(r)}
		l := x.beginUpstream(time.Minute)
		defer l.release()
		l.headersWritten(10 * time.Second)
		for range 20 {
			<-time.After(9 * time.Second)
			l.progressed(10 * time.Second)
		}
		if l.Err() != nil {
			t.Errorf("Err() of a body in progress = %v, want nil", l.Err())
		}
		<-time.After(11 * time.Second)
		if l.Err() == nil {
			t.Error("Err() of a body that stopped = nil, want an error")
		}
	})
}
