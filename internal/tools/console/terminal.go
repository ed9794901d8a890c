package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// redraw is the maximum time between two frames, because displayed ages and the size of the terminal change.
const redraw = time.Second

// Terminal shows the console in a terminal until ctx ends or the user leaves. It returns when all its goroutines have
// ended, except one that may still read from in.
func Terminal(ctx context.Context, cfg Config, in, out *os.File) error {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return errors.New("--tui needs a terminal for its input and output; `doctor` and `get apiservices` print the same for pipes")
	}
	c, err := newConsole(cfg)
	if err != nil {
		return err
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("set up the terminal: %w", err)
	}
	// Switch to the alternate screen, hide the cursor, disable wrapping.
	_, err = io.WriteString(out, "\x1b[?1049h\x1b[?25l\x1b[?7l")
	defer func() {
		_, _ = io.WriteString(out, "\x1b[?7h\x1b[?25h\x1b[?1049l")
		_ = term.Restore(int(in.Fd()), before)
	}()
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	// Not every system can interrupt a read from a terminal, so this goroutine may read until the program exits.
	keys := make(chan []byte)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(keys)
		for buf := make([]byte, 64); ; {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			select {
			case keys <- bytes.Clone(buf[:n]):
			case <-done:
				return
			}
		}
	}()
	size := func() (int, int) {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
		return 80, 24
	}
	return c.show(ctx, keys, size, os.Getenv("NO_COLOR") == "", out)
}

// show draws until ctx ends, the user leaves, or keys is closed.
func (c *Console) show(ctx context.Context, keys <-chan []byte, size func() (width, height int), colour bool, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.jobs.wg.Wait()
	defer cancel()
	wg.Go(func() { c.follow(ctx) })
	v := &terminal{console: c, colour: colour}
	drawn := ""
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for !v.left {
		v.width, v.height = size()
		v.report = v.examined() // must precede the lock of the state's mu: jobs hold their own mu while they publish
		var frame string
		var changed <-chan struct{}
		c.state.read(func() { frame, changed = v.draw(), c.state.changed })
		if frame != drawn {
			if _, err := io.WriteString(out, frame); err != nil {
				return fmt.Errorf("draw: %w", err)
			}
			drawn = frame
		}
		select {
		case pressed, ok := <-keys:
			if !ok {
				return nil
			}
			v.press(ctx, pressed)
			continue // redraw immediately
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		gap := time.NewTimer(streamGap)
		select {
		case <-gap.C:
		case pressed, ok := <-keys:
			if !ok {
				return nil
			}
			v.press(ctx, pressed)
		case <-ctx.Done():
		}
		gap.Stop()
	}
	return nil
}

// terminal is the state of the display.
type terminal struct {
	console       *Console
	colour        bool
	width, height int

	section   int
	cursor    int // index into the filtered lines
	top       int // first visible line
	filter    string
	typing    bool     // the filter is being edited
	open      string   // the APIService that is shown; empty for the list
	job       int      // the doctor run with the report that is shown, or 0
	report    []line   // the doctor's report
	lastError string   // error of the last key
	names     []string // the APIService that Enter opens, by line
	left      bool
}

const keysHelp = "1-6 or tab: section   arrows: move   enter: open   /: filter   q: leave"

// draw returns the whole screen. It requires the state's mu.
func (v *terminal) draw() string {
	now := v.console.cfg.now()
	p := painter{width: v.width, colour: v.colour}
	o := v.console.state.overview
	lines := []string{p.paint([]cell{{o.Context, strong}, {o.Server, plain}, {o.Kind + " " + o.Version, dim}}, nil, false), v.tabs(p)}
	room := v.height - 4
	help := keysHelp
	if v.open != "" {
		lines = append(lines, v.page(p, now, room+1)...)
		help = "arrows: move   d: run the doctor   esc: back   q: leave"
	} else {
		lines = append(lines, v.table(p, now, room)...)
	}
	for len(lines) < v.height-1 {
		lines = append(lines, "")
	}
	lines = lines[:max(0, v.height-1)]
	foot := cell{help, dim}
	switch {
	case v.typing:
		foot = cell{"/" + v.filter + "_", strong}
	case v.lastError != "":
		foot = cell{v.lastError, bad}
	case v.filter != "" && v.open == "":
		foot = cell{"filter: " + v.filter + "   (esc: none)", strong}
	}
	lines = append(lines, p.paint([]cell{foot}, nil, false))
	return "\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}

func (v *terminal) tabs(p painter) string {
	var cells []cell
	for i, name := range sections {
		t := dim
		text := fmt.Sprintf(" %d %s ", i+1, name)
		if i == v.section {
			t, text = strong, fmt.Sprintf("[%d %s]", i+1, name)
		}
		cells = append(cells, cell{text, t})
	}
	return p.paint(cells, nil, false)
}

// table returns the list of the section. It limits the cursor to the existing lines.
func (v *terminal) table(p painter, now time.Time, room int) []string {
	l := v.console.state.section(sections[v.section], now)
	if v.filter != "" {
		l.lines = slices.DeleteFunc(l.lines, func(one line) bool {
			return !slices.ContainsFunc(one.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), strings.ToLower(v.filter)) })
		})
		l.empty = "nothing here has " + v.filter + " in it"
	}
	v.names = v.names[:0]
	for _, one := range l.lines {
		v.names = append(v.names, one.open)
	}
	v.cursor = max(0, min(v.cursor, len(l.lines)-1))
	v.top = max(0, min(v.top, v.cursor, len(l.lines)-room))
	v.top = max(v.top, v.cursor-room+1)
	if len(l.lines) == 0 {
		return []string{"", p.paint([]cell{{l.empty, dim}}, nil, false)}
	}
	widths := l.widths()
	titles := make([]cell, len(l.titles))
	for i, t := range l.titles {
		titles[i] = cell{t, dim}
	}
	out := []string{p.paint(titles, widths, false)}
	for i := v.top; i < min(len(l.lines), v.top+max(0, room)); i++ {
		out = append(out, p.paint(l.lines[i].cells, widths, i == v.cursor))
	}
	return out
}

// page returns the view of an APIService, followed by the doctor's report.
func (v *terminal) page(p painter, now time.Time, room int) []string {
	lines := append([]line{{cells: []cell{{v.open, strong}}}}, wrap(v.console.state.describeRow(v.open, now), v.width)...)
	lines = append(lines, wrap(v.report, v.width)...)
	v.top = max(0, min(v.top, len(lines)-room))
	var out []string
	for _, one := range lines[v.top:min(len(lines), v.top+max(0, room))] {
		out = append(out, p.paint(one.cells, nil, false))
	}
	return out
}

// examined returns the lines of the doctor's report.
func (v *terminal) examined() (out []line) {
	if v.job == 0 {
		return nil
	}
	r, ok := v.console.jobs.result(v.job)
	if !ok {
		return nil
	}
	out = []line{{cells: []cell{{"", plain}}}, {cells: []cell{{"doctor: " + r.State + " " + r.Error, strong}}}}
	var text bytes.Buffer
	for _, one := range r.Reports {
		if err := one.WriteText(&text); err != nil {
			return out
		}
	}
	for l := range strings.Lines(text.String()) {
		out = append(out, line{cells: []cell{{strings.TrimRight(l, "\n"), plain}}})
	}
	return out
}

// press handles keys.
func (v *terminal) press(ctx context.Context, pressed []byte) {
	v.lastError = ""
	for len(pressed) > 0 {
		var key string
		key, pressed = nextKey(pressed)
		if v.typing {
			v.typeFilter(key)
			continue
		}
		v.do(ctx, key)
	}
}

// nextKey returns the first key: a character, or the escape sequence of a special key.
func nextKey(b []byte) (key string, rest []byte) {
	if b[0] != 0x1b || len(b) == 1 {
		_, n := utf8.DecodeRune(b)
		return string(b[:n]), b[n:]
	}
	if b[1] != '[' && b[1] != 'O' {
		return "\x1b", b[1:]
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= '@' && b[i] <= '~' {
			return "\x1b[" + string(b[2:i+1]), b[i+1:]
		}
	}
	return "", nil
}

// maxFilter bounds the length of the filter.
const maxFilter = 60

func (v *terminal) typeFilter(key string) {
	switch {
	case key == "\r" || key == "\n":
		v.typing = false
	case key == "\x1b" || key == "\x03":
		v.typing, v.filter = false, ""
	case key == "\x7f" || key == "\b":
		if r := []rune(v.filter); len(r) > 0 {
			v.filter = string(r[:len(r)-1])
		}
	case utf8.RuneCountInString(key) == 1 && key >= " " && len(v.filter) < maxFilter:
		v.filter += key
	}
	v.cursor, v.top = 0, 0
}

func (v *terminal) do(ctx context.Context, key string) {
	page := max(1, v.height-5)
	switch key {
	case "q", "\x03", "\x04":
		v.left = true
	case "\x1b", "\x7f", "\b", "\x1b[D", "h":
		if v.open == "" {
			v.filter = ""
		}
		v.open, v.job, v.top = "", 0, 0
	case "\x1b[A", "k":
		v.move(-1)
	case "\x1b[B", "j":
		v.move(1)
	case "\x1b[5~":
		v.move(-page)
	case "\x1b[6~", " ":
		v.move(page)
	case "\x1b[H", "\x1b[1~", "g":
		v.move(-1 << 20)
	case "\x1b[F", "\x1b[4~", "G":
		v.move(1 << 20)
	case "\t":
		v.choose((v.section + 1) % len(sections))
	case "\x1b[Z":
		v.choose((v.section + len(sections) - 1) % len(sections))
	case "/":
		if v.open == "" {
			v.typing, v.filter = true, ""
		}
	case "\r", "\n", "\x1b[C", "l":
		if v.open == "" && v.cursor < len(v.names) && v.names[v.cursor] != "" {
			v.open, v.top = v.names[v.cursor], 0
		}
	case "d":
		if v.open == "" {
			return
		}
		id, err := v.console.runDoctor(ctx, v.open)
		if err != nil {
			v.lastError = err.Error()
			return
		}
		v.job = id
	default:
		if len(key) == 1 && key[0] >= '1' && int(key[0]-'1') < len(sections) {
			v.choose(int(key[0] - '1'))
		}
	}
}

func (v *terminal) move(by int) {
	if v.open != "" {
		v.top = max(0, v.top+by)
		return
	}
	v.cursor = max(0, v.cursor+by)
}

func (v *terminal) choose(section int) {
	v.section, v.cursor, v.top, v.open, v.job = section, 0, 0, "", 0
}
