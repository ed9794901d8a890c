package client

import (
	"context"

	"portico.dev/internal/http2/frame"
)

// Ender is a context that can be waited for without the costs of context.AfterFunc.
type Ender interface {
	// OnEnd has f called when the context ends, or soon after. There is one f at a time.
	OnEnd(f func())
	// OffEnd takes f back, and reports whether it was not called.
	OffEnd() bool
}

// watch has the stream end with its context.
func (s *stream) watch(ctx context.Context) {
	if s.ender, _ = ctx.(Ender); s.ender != nil {
		s.ender.OnEnd(s.leave)
		return
	}
	s.unwatch = context.AfterFunc(ctx, s.leave)
}

// off ends what watch began. It is for the goroutine of the caller.
func (s *stream) off() {
	if s.ender != nil {
		s.ender.OffEnd()
	} else if s.unwatch != nil {
		s.unwatch()
	}
	s.ender, s.unwatch = nil, nil
}

func (s *stream) leave() { s.fail(left(s.request.Context()), frame.Cancel) }
