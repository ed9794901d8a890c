package report

import (
	"fmt"
	"io"

	"portico.dev/internal/drill"
)

// Progress shows on a terminal how drills get on: one line that changes, and one that stays for each that is over.
type Progress struct{ Terminal io.Writer }

// clearLine returns to the start of the line and empties it.
const clearLine = "\r\x1b[K"

func (p Progress) Phase(name, phase string) {
	fmt.Fprintf(p.Terminal, "%s%s: %s", clearLine, name, phase)
}

func (p Progress) Done(r *drill.Result) {
	fmt.Fprintf(p.Terminal, "%s%-8s %s (%s)\n", clearLine, r.Verdict, r.Drill, r.Took)
}

// Silence shows nothing, where there is no terminal.
type Silence struct{}

func (Silence) Phase(string, string) {}
func (Silence) Done(*drill.Result)   {}
