package audit

// batch is events in one piece, a line each.
type batch struct {
	text []byte
	ends []int // of each event, its line feed included
}

// maxKept bounds the room that is kept for a batch to come, maxSpare how many are kept.
const (
	maxKept  = 2 * atOnce
	maxSpare = 8
)

func (b *batch) add(line []byte) {
	b.text = append(b.text, line...)
	b.ends = append(b.ends, len(b.text))
}

// event is the nth without its line feed.
func (b *batch) event(n int) []byte {
	start := 0
	if n > 0 {
		start = b.ends[n-1]
	}
	return b.text[start : b.ends[n]-1]
}
