package console

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// screenOf holds the last screen without the terminal's control sequences.
type screenOf struct {
	mu   sync.Mutex // guards last
	last string
}

func (s *screenOf) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = string(p)
	return len(p), nil
}

func (s *screenOf) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for l := range strings.SplitSeq(s.last, "\r\n") {
		for _, command := range []string{"\x1b[H", "\x1b[K", "\x1b[J"} {
			l = strings.ReplaceAll(l, command, "")
		}
		out = append(out, l)
	}
	return out
}

func (s *screenOf) await(t *testing.T, what string, holds func(lines []string) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(s.lines()); {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met in time: %s, want it met; the screen is\n%s", what, strings.Join(s.lines(), "\n"))
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (s *screenOf) awaitText(t *testing.T, text string) {
	t.Helper()
	s.await(t, text, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) })
}

// inReverse are the commands around the line with the cursor.
var inReverse = strings.NewReplacer("\x1b[7m", "", "\x1b[27m", "")

func TestTerminalShowsStateAndReadsKeys(t *testing.T) {
	const width, height = 100, 12
	c, err := newConsole(Config{Client: &rest.Config{Host: apiServer(t, 40).URL}, Context: "test", Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	keys, ended, screen := make(chan []byte), make(chan error, 1), &screenOf{}
	go func() {
		ended <- c.show(context.Background(), keys, func() (int, int) { return width, height }, false, screen)
	}()
	press := func(text string) {
		t.Helper()
		select {
		case keys <- []byte(text):
		case <-time.After(time.Minute):
			t.Fatalf("key %q was not read within a minute, want it read", text)
		}
	}
	selected := func(l string) bool { return strings.HasPrefix(l, "\x1b[7m") }
	cursorOn := func(name string) {
		t.Helper()
		screen.await(t, "the cursor is on "+name, func(lines []string) bool {
			i := slices.IndexFunc(lines, selected)
			return i >= 0 && strings.Contains(lines[i], name)
		})
	}

	cursorOn("v1.g0000") // which is unavailable, and therefore first
	screen.await(t, "the size", func(lines []string) bool {
		return len(lines) == height && !slices.ContainsFunc(lines, func(l string) bool { return len([]rune(inReverse.Replace(l))) > width })
	})
	press("\x1b[B\x1b[Bj")
	cursorOn("v1.g0003")
	press("\x1b[F")
	cursorOn("v1.g0039")
	press("\x1b[B")
	cursorOn("v1.g0039")
	press("\x1b[5~")
	cursorOn("v1.g0032")
	press("g")
	cursorOn("v1.g0000")

	press("/G001")
	press("\r")
	cursorOn("v1.g0010")
	screen.awaitText(t, "filter: G001")
	press("/nothing of it")
	screen.awaitText(t, "nothing here has nothing of it in it")
	press("\x1b")
	cursorOn("v1.g0000")

	press("\r")
	screen.awaitText(t, "FailedDiscoveryCheck")
	screen.awaitText(t, "d: run the doctor")
	press("d")
	screen.awaitText(t, "doctor: ")
	press("\x1b")
	cursorOn("v1.g0000")

	press("6")
	screen.awaitText(t, "[6 Sources]")
	screen.awaitText(t, "Only a Portico front door has cleanup debts")
	press("\t")
	screen.awaitText(t, "[1 APIServices]")
	press("q")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the terminal did not end within a minute, want it ended")
	}
}

// Text from the cluster moves no cursor, ends no line and changes no text direction.
func TestControlCharactersOfClusterTextAreReplaced(t *testing.T) {
	for said, shown := range map[string]string{
		"plain": "plain", "\x1b[2J\x1b]0;title\a": "?[2J?]0;title?", "a\r\nb\tc": "a? b c", "\u202egnp.exe": "?gnp.exe", "größer 世界": "größer 世界", "\x9b31m": "�31m",
	} {
		if got := printable(said); got != shown {
			t.Errorf("%q is shown as %q, want %q", said, got, shown)
		}
	}
}

func TestLongLinesAreShortened(t *testing.T) {
	l := list{titles: []string{"A", "B"}, lines: []line{
		{cells: []cell{{"name", plain}, {"0123456789", plain}}}, {cells: []cell{{"a longer name", bad}, {"x", plain}}},
	}}
	p := painter{width: 20}
	want := []string{"name           01234", "a longer name  x"}
	want[0] = "name           0123…"
	for i, w := range want {
		if got := p.paint(l.lines[i].cells, l.widths(), false); got != w {
			t.Errorf("painted line = %q, want %q", got, w)
		}
	}
	if got := (painter{width: 4, colour: true}).paint([]cell{{"abcdef", bad}}, nil, false); got != "\x1b[31mabc…\x1b[22;39m" {
		t.Errorf("paint of a long red cell = %q, want it shortened with an ellipsis", got)
	}
	if got := (painter{width: 4}).paint([]cell{{"ab", plain}}, nil, true); got != "\x1b[7mab  \x1b[27m" {
		t.Errorf("paint of a selected cell = %q, want it padded and inverted", got)
	}
	var wrapped []string
	for _, one := range wrap([]line{{cells: []cell{{"t", plain}, {"one two three four", plain}}}}, 13) {
		wrapped = append(wrapped, p.paint(one.cells, nil, false))
	}
	if want := []string{"t one two ", "  three four"}; !slices.Equal(wrapped, want) {
		t.Errorf("wrapped lines = %q, want %q", wrapped, want)
	}
}

func TestBars(t *testing.T) {
	if got := spark([]value{9, 0, none, 4, 8}, 4); got != "▁ ▄█" {
		t.Errorf("spark of 9 0 - 4 8 = %q, want \"▁ ▄█\"", got)
	}
	if got := spark([]value{0, 0}, 4); got != "▁▁" {
		t.Errorf("spark of zeros = %q, want \"▁▁\"", got)
	}
	if got := number(value(math.NaN())); got != "-" {
		t.Errorf("number of NaN = %q, want \"-\"", got)
	}
}

func TestKeys(t *testing.T) {
	var got []string
	for b := []byte("a\x1b[A\x1bOB\x1b[5~ß\x1b"); len(b) > 0; {
		var key string
		key, b = nextKey(b)
		got = append(got, key)
	}
	if want := []string{"a", "\x1b[A", "\x1b[B", "\x1b[5~", "ß", "\x1b"}; !slices.Equal(got, want) {
		t.Errorf("keys = %q, want %q", got, want)
	}
	if key, rest := nextKey([]byte("\x1b[")); key != "" || rest != nil {
		t.Errorf("nextKey of an incomplete sequence = %q, %q; want no key", key, rest)
	}
}
