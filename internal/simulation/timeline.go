package simulation

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxEntries bounds the entries of a timeline. Later entries replace the oldest ones.
const maxEntries = 20_000

// timeline records the events of a history, with their virtual time.
type timeline struct {
	added atomic.Int64 // number of entries of all histories

	mu      sync.Mutex // guards the fields below
	began   time.Time
	entries []entry
	dropped int
}

type entry struct {
	at   time.Duration
	text string
}

// start removes all entries, and sets the time of origin to now.
func (l *timeline) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.entries, l.dropped = time.Now(), nil, 0
}

func (l *timeline) addf(format string, args ...any) {
	l.added.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == maxEntries {
		l.entries = l.entries[1:]
		l.dropped++
	}
	l.entries = append(l.entries, entry{time.Since(l.began), fmt.Sprintf(format, args...)})
}

// print writes the entries since a virtual time.
func (l *timeline) print(w io.Writer, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 {
		fmt.Fprintf(w, "(%d earlier entries are not shown)\n", l.dropped)
	}
	for _, e := range l.entries {
		if e.at >= since {
			fmt.Fprintf(w, "%9.3f  %s\n", e.at.Seconds(), e.text)
		}
	}
}
