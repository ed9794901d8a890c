package cli

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/term"
)

// ANSI colors of states. The words are sufficient without colors.
const (
	green, red, yellow = "\x1b[32m", "\x1b[31m", "\x1b[33m"
	noColour           = "\x1b[0m"
)

var stateColours = map[string]string{
	"ok": green, "passed": green, "available": green, "True": green, "adopted": green, "released": green, "yes": green,
	"failed": red, "broken": red, "unavailable": red, "False": red, "refused": red, "no": red,
	"unknown": yellow, "Unknown": yellow, "skipped": yellow, "warning": yellow, "interrupted": yellow,
}

// cell matches a cell. Cells are separated by at least two spaces.
var cell = regexp.MustCompile(`[^\s](?:\s?[^\s]+)*`)

// painter colors the states in tables, and the answers yes and no, line by line.
type painter struct {
	mu  sync.Mutex // guards the fields below
	out io.Writer
	// line is the incomplete last line.
	line []byte
}

// Colours returns a writer that colors states on a terminal, and a function that flushes the last line. Output to
// files, pipes and terminals without colors is not changed, nor is any output if NO_COLOR is set.
func Colours(out *os.File) (io.Writer, func()) {
	// Consoles older than Windows Terminal print the escape sequences.
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" || !term.IsTerminal(int(out.Fd())) {
		return out, func() {}
	}
	p := &painter{out: out}
	return p, p.flush
}

// Write implements io.Writer.
func (p *painter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, b...)
	end := bytes.LastIndexByte(p.line, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	var painted strings.Builder
	for line := range strings.Lines(string(p.line[:end])) {
		painted.WriteString(paint(line))
	}
	p.line = append(p.line[:0], p.line[end:]...)
	if _, err := io.WriteString(p.out, painted.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *painter) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.out, paint(string(p.line))) // the terminal may be closed; the program ends anyway
	p.line = nil
}

func paint(line string) string {
	return cell.ReplaceAllStringFunc(line, func(text string) string {
		word, rest := text, ""
		if i := strings.IndexAny(text, ":, "); i > 0 {
			word, rest = text[:i], text[i:]
		}
		// A state may be followed by details: "broken at tcp", "yes: alice get pods".
		alone := rest == "" || strings.HasPrefix(rest, " at ") || strings.HasPrefix(rest, ": ") && (word == "yes" || word == "no") || strings.HasPrefix(rest, ", as far")
		if colour := stateColours[word]; colour != "" && alone {
			return colour + word + noColour + rest
		}
		return text
	})
}
