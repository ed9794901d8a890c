package apiservice

import (
	"context"
	"sync"
	"time"
)

// troubleInterval is how often Config.DocumentTrouble is asked. What it tells concerns people, not requests.
const troubleInterval = 5 * time.Second

// troubles is what is wrong with the OpenAPI documents of backends, by APIService.
type troubles struct {
	mu sync.Mutex
	of map[string]string
}

func (t *troubles) get(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name]
}

// note is that text is said of name. Empty: nothing is.
func (t *troubles) note(name, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case text == "":
		delete(t.of, name)
	case t.of == nil:
		t.of = map[string]string{name: text}
	default:
		t.of[name] = text
	}
}

// replace returns the names of which something else is said now.
func (t *troubles) replace(now map[string]string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var differ []string
	for name, text := range now {
		if t.of[name] != text {
			differ = append(differ, name)
		}
	}
	for name := range t.of {
		if _, still := now[name]; !still {
			differ = append(differ, name)
		}
	}
	t.of = now
	return differ
}

// followDocuments asks for the state of documents until ctx ends.
func (c *Controller) followDocuments(ctx context.Context) {
	if c.cfg.DocumentTrouble == nil {
		return
	}
	tick := time.NewTicker(troubleInterval)
	defer tick.Stop()
	for {
		now := make(map[string]string)
		for _, r := range c.Table().Routes() {
			if r.Local {
				continue
			}
			if text := c.cfg.DocumentTrouble(r.Name); text != "" {
				now[r.Name] = plain(text)
			}
		}
		for _, name := range c.troubles.replace(now) {
			c.queue.Add(event{apiService: name})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
