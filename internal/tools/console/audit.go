package console

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// maxDeeds bounds the audit list.
const maxDeeds = 200

// audit records the actions of the page and the refused requests.
type audit struct {
	state *state
	now   func() time.Time
	log   io.Writer // may be nil

	mu  sync.Mutex // guards all and serializes writes to log
	all []deed     // latest first
}

func (a *audit) add(what, target string, err error) {
	d := deed{At: a.now(), What: what, Target: target, Result: "done"}
	if err != nil {
		d.Result, d.Bad = err.Error(), true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = slices.Insert(a.all, 0, d)
	a.all = a.all[:min(len(a.all), maxDeeds)]
	if a.log != nil {
		text := what
		if target != "" {
			text += " " + target
		}
		_, _ = fmt.Fprintf(a.log, "%s %s: %s\n", d.At.UTC().Format(time.RFC3339), text, d.Result) // the page shows it too
	}
	a.state.update(func() { a.state.publish(sectionAudit, a.all) })
}
