package filters

import (
	"context"
	"net/http"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// A response may go on when its handler has returned: a watch waits for days, and needs no stack as deep as that of a whole chain. What a
// filter does when a request is over is therefore not deferred, but a step that is called at the end, whenever that is.

// Step is what a filter does when a request is over.
type Step interface {
	// End is called once. panicked is what the handler panicked with; nil: it returned.
	End(panicked any)
}

// StepFunc is a function that is a Step.
type StepFunc func(panicked any)

// End implements Step.
func (f StepFunc) End(panicked any) { f(panicked) }

// AtEnd has step called when the request of ctx is over. Of several steps the last one is called first, as with defer.
func AtEnd(ctx context.Context, step Step) { contextOf(ctx).AtEnd(step) }

// AtEnd has step called when the request of c is over.
func (c *Context) AtEnd(step Step) {
	if c.steps == nil {
		c.steps = c.stepsBuffer[:0]
	}
	c.steps = append(c.steps, step)
}

// Continue is called by the handler of a request before it returns. rest is called when the handler and the filters have returned, on a
// goroutine of its own if the server can do that (continuer), and serves the rest of the response: the request is over when it returns. A
// panic in it is one of the handler. It is not called if the handler panics, so that what must be done in any case is a step.
func Continue(ctx context.Context, rest func()) { contextOf(ctx).rest = rest }

// continuer is a writer whose server lets a response go on after the handler.
type continuer interface {
	http.ResponseWriter
	// Continue has rest called when the handler has returned, and ends the response when rest returns. False: the server cannot do that.
	Continue(rest func()) bool
}

// server calls handlers and ends their requests.
type server struct {
	log     *zap.Logger
	metrics *metrics.Requests
}

// serve calls part of the handler of c's request, and ends the request unless the response goes on.
func (s *server) serve(c *Context, w http.ResponseWriter, r *http.Request, part func()) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(w, r, p)
		}
	}()
	defer c.end()
	part()
	rest := c.rest
	if rest == nil {
		return
	}
	c.rest = nil
	if w, ok := w.(continuer); ok {
		c.continues = w.Continue(func() {
			c.continues = false
			s.serve(c, w, r, rest)
		})
	}
	if !c.continues {
		rest()
	}
}

// end calls the steps, unless the response goes on. It is deferred.
func (c *Context) end() {
	if c.continues {
		return
	}
	p := recover()
	c.callSteps(p)
	if p != nil {
		panic(p)
	}
}

func (c *Context) callSteps(panicked any) {
	defer func() {
		if p := recover(); p != nil { // of a step, as if the handler had panicked
			c.callSteps(p)
			panic(p)
		}
	}()
	for last := len(c.steps) - 1; last >= 0; last-- {
		step := c.steps[last]
		c.steps = c.steps[:last]
		step.End(panicked)
	}
}
