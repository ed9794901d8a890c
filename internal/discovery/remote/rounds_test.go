package remote_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

// clocked records when rounds began.
type clocked struct {
	start  time.Time
	rounds chan time.Duration
	fail   func(round int) bool
}

func (c *clocked) visitor(remote.Backend) func(context.Context) error {
	round := 0
	return func(context.Context) error {
		round++
		c.rounds <- time.Since(c.start)
		if c.fail != nil && c.fail(round) {
			return errors.New("no")
		}
		return nil
	}
}

func run(t *testing.T, c *clocked, test func(rs *remote.Rounds, b remote.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		c.start, c.rounds = time.Now(), make(chan time.Duration, 100)
		rs := &remote.Rounds{Visitor: c.visitor}
		b := remotetest.NewInProcess("ns/name:443", remotetest.Hangs())
		ctx, cancel := context.WithCancel(t.Context())
		rs.Keep(ctx, []remote.Backend{b})
		test(rs, b)
		cancel()
		rs.Wait()
	})
}

func TestRoundsComeAtOnceAndThenOnceAMinute(t *testing.T) {
	c := &clocked{}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		if at := <-c.rounds; at != 0 {
			t.Errorf("the first round came after %s", at)
		}
		last := time.Duration(0)
		for range 5 {
			at := <-c.rounds
			if gap := at - last; gap < 48*time.Second || gap > 60*time.Second {
				t.Errorf("a round came after %s", gap)
			}
			last = at
		}
	})
}

func TestFailuresAreRetriedSoonAndThenLessOften(t *testing.T) {
	c := &clocked{fail: func(int) bool { return true }}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		last := <-c.rounds
		for want := 500 * time.Millisecond; want < 10*time.Minute; want *= 2 {
			at := <-c.rounds
			capped := min(want, time.Minute)
			if gap := at - last; gap > capped || gap < capped*3/4 {
				t.Errorf("after a pause of %s, want about %s", gap, capped)
			}
			last = at
		}
	})
}

func TestAWokenBackendIsAskedAtOnceButNotAllTheTime(t *testing.T) {
	c := &clocked{fail: func(round int) bool { return round < 20 }}
	run(t, c, func(rs *remote.Rounds, b remote.Backend) {
		for range 12 { // far enough for the pause to be a minute
			<-c.rounds
		}
		<-time.After(10 * time.Second) // of the bubble
		now := time.Since(c.start)
		rs.Wake(b)
		rs.Wake(b)
		if at := <-c.rounds; at != now {
			t.Errorf("the woken round came %s late", at-now)
		}
		rs.Wake(b)
		if at := <-c.rounds; at-now != 500*time.Millisecond {
			t.Errorf("the next woken round came after %s", at-now)
		}
	})
}

func TestABackendThatIsGoneIsAskedNoMore(t *testing.T) {
	c := &clocked{}
	run(t, c, func(rs *remote.Rounds, b remote.Backend) {
		<-c.rounds
		rs.Keep(t.Context(), nil)
		rs.Wake(b) // of no consequence
		rs.Wait()
		if len(c.rounds) != 0 {
			t.Errorf("%d more rounds", len(c.rounds))
		}
	})
}
