package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventLog records events in order.
type eventLog struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (j *eventLog) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// member returns a member that logs its start, and stops with its context.
func (j *eventLog) member(name string) Member {
	ready := make(chan struct{})
	return Member{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		j.note("start " + name)
		close(ready)
		<-ctx.Done()
		j.note("stop " + name)
		return nil
	}}
}

func TestMembersStartInOrderAndStopInReverse(t *testing.T) {
	j := &eventLog{}
	g := &Group{}
	g.Add(j.member("a"))
	g.Add(j.member("b"))
	ctx, cancel := context.WithCancel(t.Context())
	g.Add(Member{Name: "last", Run: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}})
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(j.lines, want) {
		t.Errorf("events = %v, want %v", j.lines, want)
	}
}

func TestFailedMemberIsNamedAndStopsOtherMembers(t *testing.T) {
	j := &eventLog{}
	g := &Group{}
	g.Add(j.member("a"))
	g.Add(Member{Name: "etcd", Run: func(context.Context) error { return errors.New("disk full") }})
	g.Add(j.member("c"))
	err := g.Run(t.Context())
	if err == nil || err.Error() != "etcd: disk full" {
		t.Errorf("Run with a failing member: error = %v, want \"etcd: disk full\"", err)
	}
	if !slices.Contains(j.lines, "stop a") {
		t.Errorf("events = %v, want the stop of a", j.lines)
	}
}

func TestMemberFailureBeforeReadyStopsStart(t *testing.T) {
	j := &eventLog{}
	g := &Group{}
	g.Add(j.member("a"))
	g.Add(Member{Name: "b", Ready: make(chan struct{}), Run: func(context.Context) error { return nil }})
	g.Add(j.member("never"))
	err := g.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "b stopped by itself") {
		t.Errorf("Run with a member that returns early: error = %v, want \"b stopped by itself\"", err)
	}
	if slices.Contains(j.lines, "start never") {
		t.Errorf("events = %v, want no start of the next member", j.lines)
	}
}

func TestCancellationStopsStart(t *testing.T) {
	j := &eventLog{}
	ctx, cancel := context.WithCancel(t.Context())
	g := &Group{}
	g.Add(j.member("a"))
	g.Add(Member{Name: "slow", Ready: make(chan struct{}), Run: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return nil
	}})
	g.Add(j.member("never"))
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{"start a", "stop a"}; !slices.Equal(j.lines, want) {
		t.Errorf("events = %v, want %v", j.lines, want)
	}
}

func TestErrorWhileStoppingIsReturned(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := &Group{}
	g.Add(Member{Name: "log", Run: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return errors.New("flush")
	}})
	if err := g.Run(ctx); err == nil || err.Error() != "stop log: flush" {
		t.Errorf("Run with a failing stop: error = %v, want \"stop log: flush\"", err)
	}
}
