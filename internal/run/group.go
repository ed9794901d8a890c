// Package run starts and stops the components of a program in order, and provides the timers that many components share.
package run

import (
	"context"
	"errors"
	"fmt"
)

// Member is one component of a program that runs until its context ends.
type Member struct {
	// Name is used in errors.
	Name string
	// Run blocks until ctx ends or the member fails, and returns after everything it started has returned. If it returns before
	// ctx ends, even with a nil error, the group stops.
	Run func(ctx context.Context) error
	// Ready is closed when the next member may start. If nil, the next member starts immediately.
	Ready <-chan struct{}
}

// Group runs members. Each member starts when the previous one is ready. They stop in reverse order, each after all later ones
// have returned, so that a member can use all earlier ones until it ends.
type Group struct {
	members []Member
}

// Add appends a member. It must not be called after Run.
func (g *Group) Add(m Member) { g.members = append(g.members, m) }

type running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts the members and blocks until all have returned. It returns the first failure, or nil if ctx ended.
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
	// Cancellation of the group reaches each member only when the later members have returned.
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
