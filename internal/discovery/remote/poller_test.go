package remote

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// pollRecorder records the times at which polls began.
type pollRecorder struct {
	start time.Time
	polls chan time.Duration
	// result is the result of a poll. Nil: never a change.
	result func(poll int) (changed bool, err error)
}

func (c *pollRecorder) newPoll(Backend) Poll {
	poll := 0
	return func(context.Context) (bool, error) {
		poll++
		c.polls <- time.Since(c.start)
		if c.result != nil {
			return c.result(poll)
		}
		return false, nil
	}
}

// namedBackend receives no requests.
type namedBackend struct{ Backend }

func runPoller(t *testing.T, c *pollRecorder, test func(p *poller, b Backend)) {
	synctest.Test(t, func(t *testing.T) {
		c.start, c.polls = time.Now(), make(chan time.Duration, 100)
		p := newPoller(c.newPoll)
		b := &namedBackend{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx)
		}()
		p.keep([]Backend{b})
		test(p, b)
		cancel()
		<-done
	})
}

// about fails unless the pause equals want, less the random fifth.
func about(t *testing.T, what string, pause, want time.Duration) {
	t.Helper()
	if pause > want || pause < want*3/4 {
		t.Errorf("%s: pause = %s, want about %s", what, pause, want)
	}
}

var errNo = errors.New("no")

func fails(int) (bool, error) { return false, errNo }

func TestChangingBackendIsPolledOncePerMinute(t *testing.T) {
	c := &pollRecorder{result: func(int) (bool, error) { return true, nil }}
	runPoller(t, c, func(*poller, Backend) {
		if at := <-c.polls; at != 0 {
			t.Errorf("the first poll came after %s, want 0s", at)
		}
		last := time.Duration(0)
		for range 5 {
			at := <-c.polls
			about(t, "a backend that keeps changing", at-last, time.Minute)
			last = at
		}
	})
}

func TestPollIntervalGrowsUntilChange(t *testing.T) {
	c := &pollRecorder{result: func(poll int) (bool, error) { return poll == 8, nil }}
	runPoller(t, c, func(*poller, Backend) {
		last := <-c.polls
		for i, want := range []time.Duration{1, 2, 4, 5, 5, 5, 5, 1, 1, 2} {
			at := <-c.polls
			about(t, "after poll "+strconv.Itoa(i+1), at-last, want*time.Minute)
			last = at
		}
	})
}

func TestFailureResetsInterval(t *testing.T) {
	c := &pollRecorder{result: func(poll int) (bool, error) {
		if poll == 6 {
			return false, errNo
		}
		return false, nil
	}}
	runPoller(t, c, func(*poller, Backend) {
		var last time.Duration
		for range 6 {
			last = <-c.polls
		}
		for _, want := range []time.Duration{500 * time.Millisecond, time.Minute, 2 * time.Minute} {
			at := <-c.polls
			about(t, "after the failure", at-last, want)
			last = at
		}
	})
}

func TestFailuresAreRetriedWithBackoff(t *testing.T) {
	c := &pollRecorder{result: fails}
	runPoller(t, c, func(*poller, Backend) {
		last := <-c.polls
		for want := 500 * time.Millisecond; want < 10*time.Minute; want *= 2 {
			at := <-c.polls
			about(t, "after a failure", at-last, min(want, maxRetry))
			last = at
		}
	})
}

func TestPollNowKeepsMinimalGap(t *testing.T) {
	c := &pollRecorder{result: func(poll int) (bool, error) {
		if poll < 20 {
			return false, errNo
		}
		return false, nil
	}}
	runPoller(t, c, func(p *poller, b Backend) {
		for range 12 { // far enough for the longest pause
			<-c.polls
		}
		<-time.After(2 * time.Second) // of the bubble
		now := time.Since(c.start)
		p.pollNow(b)
		p.pollNow(b)
		if at := <-c.polls; at != now {
			t.Errorf("the poll came %s late, want it at once", at-now)
		}
		p.pollNow(b)
		about(t, "asked for right after a poll", <-c.polls-now, 500*time.Millisecond)
	})
}

func TestPollSoonPollsAtMostOncePerMinute(t *testing.T) {
	c := &pollRecorder{}
	runPoller(t, c, func(p *poller, b Backend) {
		var last time.Duration
		for range 6 { // far enough for a pause of five minutes
			last = <-c.polls
		}
		<-time.After(90 * time.Second) // of the bubble
		now := time.Since(c.start)
		p.pollSoon(b)
		if at := <-c.polls; at != now {
			t.Errorf("the poll came %s late, %s after the last one, want it at once", at-now, at-last)
		}
		last = now
		for range 3 { // a backend that never sends the same answer twice
			<-time.After(time.Second)
			p.pollSoon(b)
			at := <-c.polls
			about(t, "asked for again and again", at-last, time.Minute)
			last = at
		}
		for _, want := range []time.Duration{1, 2, 4} {
			at := <-c.polls
			about(t, "afterwards", at-last, want*time.Minute)
			last = at
		}
	})
}

func TestRemovedBackendIsNotPolled(t *testing.T) {
	c := &pollRecorder{}
	runPoller(t, c, func(p *poller, b Backend) {
		<-c.polls
		p.keep(nil)
		p.pollNow(b) // has no effect
		p.pollSoon(b)
		<-time.After(time.Hour) // of the bubble
		if len(c.polls) != 0 {
			t.Errorf("%d more polls of a removed backend, want 0", len(c.polls))
		}
	})
}
