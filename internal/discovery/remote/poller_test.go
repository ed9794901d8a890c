package remote_test

import (
	"context"
	"errors"
	"strconv"
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
	// says is what a round finds. Nil: never anything new.
	says func(round int) (news bool, err error)
}

func (c *clocked) visitor(remote.Backend) remote.Visit {
	round := 0
	return func(context.Context) (bool, error) {
		round++
		c.rounds <- time.Since(c.start)
		if c.says != nil {
			return c.says(round)
		}
		return false, nil
	}
}

func run(t *testing.T, c *clocked, test func(rs *remote.Rounds, b remote.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		c.start, c.rounds = time.Now(), make(chan time.Duration, 100)
		rs := remote.NewRounds(c.visitor)
		b := remotetest.NewInProcess("ns/name:443", remotetest.Hangs())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			rs.Run(ctx)
		}()
		rs.Keep([]remote.Backend{b})
		test(rs, b)
		cancel()
		<-done
	})
}

// about fails unless a pause is what is wanted, less the fifth that is left to chance.
func about(t *testing.T, what string, pause, want time.Duration) {
	t.Helper()
	if pause > want || pause < want*3/4 {
		t.Errorf("%s: a pause of %s, want about %s", what, pause, want)
	}
}

var errNo = errors.New("no")

func fails(int) (bool, error) { return false, errNo }

func TestRoundsComeAtOnceAndThenOnceAMinuteWhileTheyBringNews(t *testing.T) {
	c := &clocked{says: func(int) (bool, error) { return true, nil }}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		if at := <-c.rounds; at != 0 {
			t.Errorf("the first round came after %s", at)
		}
		last := time.Duration(0)
		for range 5 {
			at := <-c.rounds
			about(t, "a restless backend", at-last, time.Minute)
			last = at
		}
	})
}

func TestRoundsThatBringNothingNewComeLessOftenUntilSomethingIs(t *testing.T) {
	c := &clocked{says: func(round int) (bool, error) { return round == 8, nil }}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		last := <-c.rounds
		for i, want := range []time.Duration{1, 2, 4, 5, 5, 5, 5, 1, 1, 2} {
			at := <-c.rounds
			about(t, "after round "+strconv.Itoa(i+1), at-last, want*time.Minute)
			last = at
		}
	})
}

func TestAFailureEndsTheCalm(t *testing.T) {
	c := &clocked{says: func(round int) (bool, error) {
		if round == 6 {
			return false, errNo
		}
		return false, nil
	}}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		var last time.Duration
		for range 6 {
			last = <-c.rounds
		}
		for _, want := range []time.Duration{500 * time.Millisecond, time.Minute, 2 * time.Minute} {
			at := <-c.rounds
			about(t, "after the failure", at-last, want)
			last = at
		}
	})
}

func TestFailuresAreRetriedSoonAndThenLessOften(t *testing.T) {
	c := &clocked{says: fails}
	run(t, c, func(*remote.Rounds, remote.Backend) {
		last := <-c.rounds
		for want := 500 * time.Millisecond; want < 10*time.Minute; want *= 2 {
			at := <-c.rounds
			about(t, "after a failure", at-last, min(want, time.Minute))
			last = at
		}
	})
}

func TestAWokenBackendIsAskedAtOnceButNotAllTheTime(t *testing.T) {
	c := &clocked{says: func(round int) (bool, error) {
		if round < 20 {
			return false, errNo
		}
		return false, nil
	}}
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
		about(t, "woken right after a round", <-c.rounds-now, 500*time.Millisecond)
	})
}

func TestABackendThatMayHaveChangedIsAskedSoonButNoMoreThanOnceAMinute(t *testing.T) {
	c := &clocked{}
	run(t, c, func(rs *remote.Rounds, b remote.Backend) {
		var last time.Duration
		for range 6 { // far enough for the pause to be five minutes
			last = <-c.rounds
		}
		<-time.After(90 * time.Second) // of the bubble
		now := time.Since(c.start)
		rs.Reask(b)
		if at := <-c.rounds; at != now {
			t.Errorf("the round came %s late, %s after the last", at-now, at-last)
		}
		last = now
		for range 3 { // whoever never says the same twice
			<-time.After(time.Second)
			rs.Reask(b)
			at := <-c.rounds
			about(t, "asked again and again", at-last, time.Minute)
			last = at
		}
		for _, want := range []time.Duration{1, 2, 4} {
			at := <-c.rounds
			about(t, "afterwards", at-last, want*time.Minute)
			last = at
		}
	})
}

func TestABackendThatIsGoneIsAskedNoMore(t *testing.T) {
	c := &clocked{}
	run(t, c, func(rs *remote.Rounds, b remote.Backend) {
		<-c.rounds
		rs.Keep(nil)
		rs.Wake(b) // of no consequence
		rs.Reask(b)
		<-time.After(time.Hour) // of the bubble
		if len(c.rounds) != 0 {
			t.Errorf("%d more rounds", len(c.rounds))
		}
	})
}
