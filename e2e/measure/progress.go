package measure

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Progress shows the progress of a run on a terminal. It prints nothing if standard error is not a terminal.
type Progress struct {
	began    time.Time
	terminal bool
	mu       sync.Mutex // serializes output
}

// NewProgress returns a Progress that writes to standard error.
func NewProgress() *Progress {
	info, err := os.Stderr.Stat()
	return &Progress{began: time.Now(), terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// Say replaces the line.
func (p *Progress) Say(format string, args ...any) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(os.Stderr, "\r\x1b[K%4.0f s  %s", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// End moves the cursor to a new line.
func (p *Progress) End() {
	if p.terminal {
		fmt.Fprintln(os.Stderr)
	}
}
