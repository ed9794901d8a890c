package report

import (
	"fmt"
	"io"

	"portico.dev/internal/tools/drill"
)

// Progress shows the progress of drills on a terminal: one line for the current phase, which is overwritten, and one
// line for each finished drill.
type Progress struct{ Terminal io.Writer }

// clearLine moves to the start of the line and clears it.
const clearLine = "\r\x1b[K"

func (p Progress) Phase(name, phase string) {
	fmt.Fprintf(p.Terminal, "%s%s: %s", clearLine, name, phase)
}

func (p Progress) Done(r *drill.Result) {
	fmt.Fprintf(p.Terminal, "%s%-8s %s (%s)", clearLine, r.VerdictText(), r.Drill, r.Took)
	if violation := r.Violation(); violation != "" {
		fmt.Fprintf(p.Terminal, ": %s", violation)
	}
	fmt.Fprintln(p.Terminal)
}

// Silence shows no progress. It is for output that is not a terminal.
type Silence struct{}

func (Silence) Phase(string, string) {}
func (Silence) Done(*drill.Result)   {}
