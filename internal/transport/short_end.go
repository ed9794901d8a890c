package transport

import "context"

// ender is a context that can be waited for without the costs of context.AfterFunc.
type ender interface {
	// OnEnd has f called when the context ends, or soon after. There is one f at a time.
	OnEnd(f func())
	// OffEnd takes f back, and reports whether it was not called.
	OffEnd() bool
}

// watch has the request cut when ctx ends.
func (c *shortConn) watch(ctx context.Context) {
	if c.ender, _ = ctx.(ender); c.ender != nil {
		c.ender.OnEnd(c.cutter)
		return
	}
	c.stop = context.AfterFunc(ctx, c.cutter)
}

// unwatch ends what watch began, and reports whether nothing was cut.
func (c *shortConn) unwatch() (whole bool) {
	if c.ender != nil {
		whole = c.ender.OffEnd()
	} else {
		whole = c.stop()
	}
	c.ender, c.stop = nil, nil
	return whole
}
