// Package run starts and stops the parts of a program in order, and has the timers that many parts share.
package run

import (
	"context"
	"errors"
	"fmt"
)

// Member is one part of a program that runs until its context ends.
type Member struct {
	// Name stands in errors.
	Name string
	// Run blocks until ctx ends or the member fails, and returns after everything it started has returned.
	// Returning before ctx ends, even with a nil error, stops the group.
	Run func(ctx context.Context) error
	// Ready is closed when the next member may start. Nil: at once.
	Ready <-chan struct{}
}

// Group runs members: each starts when the one before it is ready; they stop in the reverse order, each only after
// every later one has returned, so that nothing is pulled from under a part that still uses it.
type Group struct {
	members []Member
}

// Add appends a member. It must not be called once Run has been.
func (g *Group) Add(m Member) { g.members = append(g.members, m) }

type running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts the members and blocks until all have returned. The error is the first failure, nil when ctx ended it.
func (g *Group) Run(ctx context.Context) error {
	failed := make(chan *running, len(g.members))
	var started []*running
	err := func() error {
		for _, m := range g.members {
			r := start(ctx, m, failed)
			started = append(started, r)
			if err := awaitReady(ctx, m, failed); err != nil || ctx.Err() != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-failed:
			return r.failure()
		}
	}()
	for i := len(started) - 1; i >= 0; i-- {
		started[i].cancel()
		<-started[i].done
		if e := started[i].err; e != nil && !errors.Is(e, context.Canceled) && err == nil {
			err = fmt.Errorf("stop %s: %w", started[i].name, e)
		}
	}
	return err
}

func start(ctx context.Context, m Member, failed chan<- *running) *running {
	// Cancellation of the whole reaches each member only when its turn comes.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{name: m.Name, cancel: cancel, done: make(chan struct{})}
	go func() {
		r.err = m.Run(own)
		close(r.done)
		if own.Err() == nil {
			failed <- r
		}
	}()
	return r
}

func awaitReady(ctx context.Context, m Member, failed <-chan *running) error {
	if m.Ready == nil {
		return nil
	}
	select {
	case <-m.Ready:
		return nil
	case r := <-failed:
		return r.failure()
	case <-ctx.Done():
		return nil
	}
}

func (r *running) failure() error {
	if r.err == nil {
		return fmt.Errorf("%s stopped by itself", r.name)
	}
	return fmt.Errorf("%s: %w", r.name, r.err)
}
