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

// The colours of terminals for states, beside which the words stand.
const (
	green, red, yellow = "\x1b[32m", "\x1b[31m", "\x1b[33m"
	noColour           = "\x1b[0m"
)

var stateColours = map[string]string{
	"ok": green, "passed": green, "available": green, "True": green, "adopted": green, "released": green, "yes": green,
	"failed": red, "broken": red, "unavailable": red, "False": red, "refused": red, "no": red,
	"unknown": yellow, "Unknown": yellow, "skipped": yellow, "warning": yellow, "interrupted": yellow,
}

// cell is what tables and lists have between columns, which are two blanks apart.
var cell = regexp.MustCompile(`[^\s](?:\s?[^\s]+)*`)

// painter colours the cells of tables that are states, and the answers yes and no, line by line.
type painter struct {
	mu  sync.Mutex // guards what follows
	out io.Writer
	// line is what has been written of a line.
	line []byte
}

// Colours returns what paints the states in what is written to a terminal, and a function that writes what is left of the last line. Files,
// pipes, terminals without colours, and people who set NO_COLOR get what is written as it is.
func Colours(out *os.File) (io.Writer, func()) {
	// Consoles of Windows before its Terminal show the codes.
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
	_, _ = io.WriteString(p.out, paint(string(p.line))) // it is a terminal, and the program ends
	p.line = nil
}

func paint(line string) string {
	return cell.ReplaceAllStringFunc(line, func(text string) string {
		word, rest := text, ""
		if i := strings.IndexAny(text, ":, "); i > 0 {
			word, rest = text[:i], text[i:]
		}
		// A state with something that belongs to it: "broken at tcp", "yes: alice get pods".
		alone := rest == "" || strings.HasPrefix(rest, " at ") || strings.HasPrefix(rest, ": ") && (word == "yes" || word == "no") || strings.HasPrefix(rest, ", as far")
		if colour := stateColours[word]; colour != "" && alone {
			return colour + word + noColour + rest
		}
		return text
	})
}
