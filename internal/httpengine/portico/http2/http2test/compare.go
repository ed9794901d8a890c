package http2test

import (
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"

	"golang.org/x/net/http2"
)

// Compared is a frame, or a header block, with a description of each side's reaction.
type Compared struct {
	Step
	Ours, Theirs string
	// Again is set if the stream, or a newer one, was already reset or answered.
	Again bool
	// Ended is set if the sender of the frame has already ended the stream.
	Ended bool
	// Parted is set if the reactions on the stream already differed.
	Parted bool
	// Others is set if the reactions on any stream already differed.
	Others bool
	// Spoilt is set if a stream was already reset with PROTOCOL_ERROR, by either end of the connection.
	Spoilt bool
}

// Twice reports whether a frame contains a setting more than once.
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

// Is reports whether the frame has type t.
func (c *Compared) Is(t http2.FrameType) bool { return c.Type == t }

// EndsConnection reports whether the reaction did ends the connection with an error, with one of the codes if any are given.
func EndsConnection(did string, codes ...http2.ErrCode) bool {
	for _, e := range strings.Split(did, "; ") {
		if code, ok := strings.CutPrefix(e, "0 GOAWAY "); ok && code != "NO_ERROR" {
			return len(codes) == 0 || slices.ContainsFunc(codes, func(c http2.ErrCode) bool { return c.String() == code })
		}
	}
	return len(codes) == 0 && strings.Contains(did, "0 closed")
}

// Resets reports whether the reaction did resets a stream, and nothing else.
func Resets(did string, codes ...http2.ErrCode) bool {
	_, code, ok := strings.Cut(did, " RST ")
	return ok && !strings.Contains(did, ";") && (len(codes) == 0 || slices.ContainsFunc(codes, func(c http2.ErrCode) bool { return c.String() == code }))
}

// Difference is an intended difference between two implementations. The events after it on its streams, or on the
// connection, are not compared.
type Difference struct {
	Name, Why string
	// Is reports whether c is this difference.
	Is func(c *Compared) bool
}

// words returns the events as text, stream by stream. It omits optional events: a reset with NO_ERROR for the rest of a
// body, and the end of a connection after a GOAWAY.
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

// Compare returns the first difference between ours and theirs that is not in differences. It compares the beginning of the
// connection, then each step, and finally the end.
func Compare(steps []Step, ours, theirs [][]Event, differences []Difference) (unnamed string) {
	apart := map[uint32]bool{} // streams on which the reactions differed
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
		if apart[0] || isLeaving(o) || isLeaving(l) {
			return answers(ours[len(ours)-1], theirs[len(theirs)-1], apart, isLeaving(o) != isLeaving(l), differences)
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

// answers compares the responses to requests when one side or both sides end the connection.
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

// part records the streams on which o and l differ.
func part(apart map[uint32]bool, o, l []Event) {
	for _, e := range slices.Concat(o, l) {
		same := func(other Event) bool { return other == e }
		if !slices.ContainsFunc(o, same) || !slices.ContainsFunc(l, same) {
			apart[e.Stream] = true
		}
	}
}

// isLeaving reports whether a side is leaving the connection, or has left. A graceful shutdown may take any time.
func isLeaving(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Closed || e.Kind == GoAway })
}

// MaxAllocated returns the limit of the total allocations of one run of a connection, for an input of the given size. It
// also limits the memory held at any time.
func MaxAllocated(input int) uint64 { return 24<<20 + 2000*uint64(input) }

// Allocated returns the number of bytes allocated since the process began.
func Allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
