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

// A request without a watching goroutine ends when its client leaves, at its deadline, and when its body stops. A finished
// request leaves no entry.
func TestUnwatchedRequestEndsWithClientOrDeadline(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		deadline, leaves, answered, idle time.Duration
		from, to                         time.Duration // when it ends
		reason                           error
	}{
		"the client leaves at once":                 {deadline: 10 * second, leaves: time.Millisecond, to: watchDelay, reason: errClientGone},
		"the client leaves late":                    {deadline: 10 * second, leaves: 3 * second, from: 3 * second, to: 3 * second, reason: errClientGone},
		"the deadline passes":                       {deadline: 10 * second, from: 10 * second, to: 10 * second, reason: errHeaderTimeout},
		"a deadline before the first look":          {deadline: watchDelay / 2, from: watchDelay / 2, to: watchDelay / 2, reason: errHeaderTimeout},
		"a body stops that began before any look":   {deadline: 10 * second, answered: time.Millisecond, idle: 5 * second, from: 5 * second, to: 5*second + watchDelay, reason: errBodyIdle},
		"a body stops that may do so for less long": {deadline: 10 * second, answered: second, idle: 2 * second, from: 3 * second, to: 3 * second, reason: errBodyIdle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, leave := context.WithCancel(t.Context())
				defer leave()
				ctx := &request.Context{Context: client}
				ctx.SetDeadline(time.Now().Add(test.deadline))
				defer ctx.Finish()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
				if err != nil {
					t.Fatal(err)
				}
				p := New(Config{})
				others := []*exchange{{r: r, request: filters.RequestOf(r), proxy: p}, {r: r, request: filters.RequestOf(r), proxy: p}}
				others[0].beginUpstream(time.Minute)
				start := time.Now()
				x := &exchange{r: r, request: filters.RequestOf(r), proxy: p}
				l := x.beginUpstream(time.Minute)
				others[1].beginUpstream(time.Minute)
				others[0].upstream.release()
				ended := make(chan time.Duration, 1)
				l.OnEnd(func() { ended <- time.Since(start) })
				if test.leaves > 0 {
					defer time.AfterFunc(test.leaves, leave).Stop()
				}
				if test.answered > 0 {
					defer time.AfterFunc(test.answered, func() { l.headersWritten(test.idle) }).Stop()
				}
				select {
				case at := <-ended:
					if at < test.from || at > test.to {
						t.Errorf("the request ended after %s, want %s to %s", at, test.from, test.to)
					}
				case <-time.After(time.Hour):
					t.Error("the request did not end within an hour, want an end")
				}
				if !errors.Is(l.wrap(context.Canceled), test.reason) {
					t.Errorf("reason of the end = %v, want %v", l.wrap(context.Canceled), test.reason)
				}
				if l.OffEnd() {
					t.Error("OffEnd() after the call = true, want false")
				}
				l.release()
				others[1].upstream.release()
				if !p.unwatched.Empty() {
					t.Error("the list of unwatched requests is not empty after the release, want it empty")
				}
			})
		})
	}
}

// Err detects that the client has left, before any periodic check.
func TestUnwatchedUpstreamContextErrDetectsDisconnect(t *testing.T) {
	client, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(client, http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	x := &exchange{r: r, request: filters.RequestOf(r), proxy: New(Config{})}
	l := x.beginUpstream(time.Minute)
	defer l.release()
	called := make(chan struct{})
	l.OnEnd(func() { close(called) })
	if l.Err() != nil {
		t.Fatalf("Err() of a new context = %v, want nil", l.Err())
	}
	leave()
	if l.Err() == nil {
		t.Error("Err() after the client left = nil, want an error")
	}
	select {
	case <-called:
	case <-time.After(30 * time.Second):
		t.Error("OnEnd was not called within 30s, want a call")
	}
}
