package apiservice

import (
	"context"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// conferGap is the least time between two rounds of talk with the other replicas. The first word after a silence is not
// delayed.
const conferGap = 100 * time.Millisecond

// confer tells the other replicas what this one sees, and acts on what they see, until ctx ends.
func (c *Controller) confer(ctx context.Context) {
	if c.council.peers == nil {
		return
	}
	var spoken *Table
	for ctx.Err() == nil {
		table, peers := c.Changed(), c.council.peers.Changed() // before either is read
		if t := c.Table(); t != spoken {
			c.speak(t)
			spoken = t
		}
		c.heed(c.council.listen())
		if !run.Pause(ctx, conferGap) {
			return
		}
		select {
		case <-ctx.Done():
		case <-table:
		case <-peers:
		}
	}
}

func (c *Controller) speak(t *Table) {
	text, err := saying(t)
	if err != nil {
		c.log.Error("tell the other replicas", zap.Error(err))
		return
	}
	c.council.peers.Say(text)
}

// heed looks again at what other replicas see differently than before: at the status, and, where this replica disagrees,
// at the backend. A replica that had no reason to look for half a minute so learns in a moment that a backend went, and
// one that is backing off that it is back. Only a change of mind of another replica leads to a probe, so that replicas
// that go on disagreeing do not go on asking.
func (c *Controller) heed(n news) {
	for _, r := range c.Table().Routes() {
		if !n.all && !n.names.Has(r.Name) {
			continue
		}
		c.scribe.queue.Add(r.Name)
		if m, ok := c.monitors.get(r.Backend); ok && n.names.Has(r.Name) && c.council.disagrees(r) {
			m.nudge()
		}
	}
}
