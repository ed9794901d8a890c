package apiservice

import "context"

// Debts are what has to be cleaned up at backends, by APIService.
type Debts interface {
	// Owed says what is to be cleaned up at an APIService's backend, in words that are the same while it is the same;
	// empty when nothing is. It must not block.
	Owed(apiService string) string
	// Changed returns a channel that is closed when Owed next says something else. Take it before asking Owed.
	Changed() <-chan struct{}
}

func (c *Controller) debtOf(name string) string {
	if c.cfg.Debts == nil {
		return ""
	}
	return c.cfg.Debts.Owed(name)
}

// judgedDebtOf is the debt by which an APIService is about to be judged. It is noted, so that followDebts finds whoever was
// judged by another than there is now, whether its route is in the table already or not.
func (c *Controller) judgedDebtOf(name string) string {
	text := c.debtOf(name)
	c.debts.note(name, text)
	if c.debtOf(name) != text { // paid before it was noted
		c.queue.Add(event{apiService: name})
	}
	return text
}

// followDebts judges anew whoever owes something else than before, until ctx ends.
func (c *Controller) followDebts(ctx context.Context) {
	if c.cfg.Debts == nil {
		return
	}
	for {
		changed := c.cfg.Debts.Changed()
		now := make(map[string]string)
		for _, r := range c.Table().Routes() {
			if text := c.debtOf(r.Name); text != "" && !r.Local {
				now[r.Name] = text
			}
		}
		for _, name := range c.debts.replace(now) {
			c.queue.Add(event{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
