package filters

import (
	"context"
	"net/http"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// A response may continue after its handler has returned: a watch lasts for days, and does not need the stack of a
// whole chain. Filters therefore do not defer their work at the end of a request, but register a Step, which is
// called when the request is over.

// Step is the work of a filter at the end of a request.
type Step interface {
	// End is called once. panicked is the handler's panic value, or nil if the handler returned.
	End(panicked any)
}

// StepFunc is a function that implements Step.
type StepFunc func(panicked any)

// End implements Step.
func (f StepFunc) End(panicked any) { f(panicked) }

// AtEnd registers a step to be called when the request of ctx is over. Steps are called in reverse order, as with
// defer.
func AtEnd(ctx context.Context, step Step) { contextOf(ctx).AtEnd(step) }

// AtEnd registers a step to be called when the request of c is over.
func (c *Context) AtEnd(step Step) {
	if c.steps == nil {
		c.steps = c.stepsBuffer[:0]
	}
	c.steps = append(c.steps, step)
}

// Continue is called by the handler of a request before it returns. When the handler and the filters have returned,
// rest serves the rest of the response, on a new goroutine if the server supports that (continuer). The request is
// over when rest returns. A panic in rest counts as a panic of the handler. rest is not called if the handler panics,
// so mandatory work belongs in a Step.
func Continue(ctx context.Context, rest func()) { contextOf(ctx).rest = rest }

// continuer is a writer with a server that can continue a response after the handler has returned.
type continuer interface {
	http.ResponseWriter
	// Continue calls rest after the handler has returned, and ends the response when rest returns. It returns false
	// if the server does not support this.
	Continue(rest func()) bool
}

// server calls handlers and ends their requests.
type server struct {
	log     *zap.Logger
	metrics *metrics.Requests
}

// serve calls part of the handler of c's request, and ends the request unless the response continues.
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

// end calls the steps, unless the response continues. It must be deferred.
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
		if p := recover(); p != nil { // a step's panic counts as the handler's
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
