package http2test

import (
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"

	"golang.org/x/net/http2"
)

// Compared is a frame, or a header block, and what each side did about it, in words.
type Compared struct {
	Step
	Ours, Theirs string
	// Again is whether the stream, or a newer one, was reset or answered before.
	Again bool
	// Ended is whether whoever says the frames has ended the stream before.
	Ended bool
	// Parted is whether the sides did not do the same on the stream before.
	Parted bool
	// Others is whether they did not on any stream.
	Others bool
	// Spoilt is whether a stream was reset with PROTOCOL_ERROR before, by either end of the connection.
	Spoilt bool
}

// Twice reports whether a setting is more than once in a frame.
func Twice(payload []byte) bool {
	seen := map[[2]byte]bool{}
	for ; len(payload) >= 6; payload = payload[6:] {
		id := [2]byte(payload)
		if seen[id] {
			return true
		}
		seen[id] = true
	}
	return false
}

// Is reports whether the frame is of a type.
func (c *Compared) Is(t http2.FrameType) bool { return c.Type == t }

// Ends reports whether what a side did is to give up the connection, with one of these codes if there are any.
func Ends(did string, codes ...http2.ErrCode) bool {
	for _, e := range strings.Split(did, "; ") {
		if code, ok := strings.CutPrefix(e, "0 GOAWAY "); ok && code != "NO_ERROR" {
			return len(codes) == 0 || slices.ContainsFunc(codes, func(c http2.ErrCode) bool { return c.String() == code })
		}
	}
	return len(codes) == 0 && strings.Contains(did, "0 closed")
}

// Resets reports whether what a side did is to reset a stream, and nothing else.
func Resets(did string, codes ...http2.ErrCode) bool {
	_, code, ok := strings.Cut(did, " RST ")
	return ok && !strings.Contains(did, ";") && (len(codes) == 0 || slices.ContainsFunc(codes, func(c http2.ErrCode) bool { return c.String() == code }))
}

// Difference is one between two implementations that is meant to be. What comes after it on its streams, or on the connection, is
// not compared.
type Difference struct {
	Name, Why string
	// Is tells it from others.
	Is func(c *Compared) bool
}

// words are events, stream by stream. That the rest of a body is not needed may be said or not, and so may the end of a connection
// that is given up.
func words(events []Event, apart map[uint32]bool) string {
	var all []string
	for _, e := range events {
		broken := len(all) > 0 && strings.HasPrefix(all[0], "0 GOAWAY ") && e.Kind == Closed
		if !apart[e.Stream] && !broken && (e.Kind != Reset || e.Text != http2.ErrCodeNo.String()) {
			all = append(all, e.String())
		}
	}
	return strings.Join(all, "; ")
}

// Compare returns the first difference that has no name between what ours and theirs did: at first about what a connection begins
// with, then about each step, and at last about the end.
func Compare(steps []Step, ours, theirs [][]Event, differences []Difference) (unnamed string) {
	apart := map[uint32]bool{} // streams on which they did not do the same
	ended := map[uint32]bool{}
	spoilt := false
	done := uint32(0) // the newest stream that was ended, or reset
	for i := range max(len(ours), len(theirs)) {
		c := Compared{Step: Step{What: "the end"}}
		if i == 0 {
			c.What = "the beginning"
		} else if i <= len(steps) {
			c.Step = steps[i-1]
		}
		if i >= len(ours) || i >= len(theirs) {
			return fmt.Sprintf("step %d: %s\none takes it, the other does not", i, c.What)
		}
		o, l := ours[i], theirs[i]
		c.Ours, c.Theirs, c.Again = words(o, apart), words(l, apart), c.Stream != 0 && c.Stream <= done
		c.Ended, c.Spoilt = ended[c.Stream], spoilt
		c.Others, c.Parted = len(apart) > 0, c.Stream != 0 && apart[c.Stream]
		if c.Ours != c.Theirs {
			if !slices.ContainsFunc(differences, func(d Difference) bool { return d.Is(&c) }) {
				return fmt.Sprintf("step %d: %s\nours:   %.1500s\ntheirs: %.1500s", i, c.What, c.Ours, c.Theirs)
			}
			part(apart, o, l)
		}
		if apart[0] || left(o) || left(l) {
			return answers(ours[len(ours)-1], theirs[len(theirs)-1], apart, left(o) != left(l), differences)
		}
		for _, e := range slices.Concat(o, l) {
			if e.Kind == Reset || e.Kind == End {
				done = max(done, e.Stream)
			}
			spoilt = spoilt || e.Kind == Reset && e.Text == http2.ErrCodeProtocol.String()
		}
		if (c.Type == http2.FrameData || c.Type == http2.FrameHeaders) && c.Flags&1 != 0 {
			ended[c.Stream] = true
		}
		if c.Type == http2.FrameRSTStream {
			done = max(done, c.Stream)
			spoilt = spoilt || string(c.Bytes[9:]) == "\x00\x00\x00\x01"
		}
	}
	return ""
}

// answers compares what came of requests when the connection is given up, by one side only or by both.
func answers(ours, theirs []Event, apart map[uint32]bool, oneSided bool, differences []Difference) (unnamed string) {
	for i := range min(len(ours), len(theirs)) {
		o, l := ours[i], theirs[i]
		if o.Kind != Answer || l.Kind != Answer || o.Text == l.Text || apart[o.Stream] || (o.Text == Failed || l.Text == Failed) && oneSided {
			continue
		}
		c := Compared{Step: Step{What: "the end"}, Ours: o.String(), Theirs: l.String(), Others: len(apart) > 0}
		if !slices.ContainsFunc(differences, func(d Difference) bool { return d.Is(&c) }) {
			return fmt.Sprintf("what came of the request\nours:   %.1500s\ntheirs: %.1500s", c.Ours, c.Theirs)
		}
	}
	return ""
}

// part notes the streams on which o and l differ.
func part(apart map[uint32]bool, o, l []Event) {
	for _, e := range slices.Concat(o, l) {
		same := func(other Event) bool { return other == e }
		if !slices.ContainsFunc(o, same) || !slices.ContainsFunc(l, same) {
			apart[e.Stream] = true
		}
	}
}

// left reports whether a side is leaving the connection, or has left. Who leaves in peace takes its own time.
func left(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Closed || e.Kind == GoAway })
}

// MaxAllocated bounds what one run of a connection may allocate in all, for an input of some bytes: it bounds what can be held at a time.
func MaxAllocated(input int) uint64 { return 24<<20 + 2000*uint64(input) }

// Allocated is how many bytes were allocated since the process began.
func Allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
