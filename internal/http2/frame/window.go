package frame

// Inflow is a window of the receiving side: how much the other side may still send, and how much of what was consumed it
// has not been told of. It is guarded by its owner.
type Inflow struct {
	left   int64
	owed   int64
	notice int64 // how much is owed before it is worth a frame
}

// NewInflow is a window of size.
func NewInflow(size int64) Inflow { return Inflow{left: size, notice: max(1, size/4)} }

// Take counts n bytes that arrived. False: the other side sent more than it may.
func (f *Inflow) Take(n int) bool {
	if int64(n) > f.left {
		return false
	}
	f.left -= int64(n)
	return true
}

// Give counts n bytes that were consumed. The result, unless 0, is for a WINDOW_UPDATE frame that must be sent now.
func (f *Inflow) Give(n int) uint32 {
	f.owed += int64(n)
	if f.owed < f.notice {
		return 0
	}
	increment := f.owed
	f.owed = 0
	f.left += increment
	return uint32(increment)
}

// Sender is the sending half of a stream. Its fields are guarded by the Out.
type Sender struct {
	// ID is the stream's; the client's Out gives it in Open.
	ID      uint32
	credit  int64 // by WINDOW_UPDATE, beyond the initial window
	sent    int64
	waiting bool // it is in one of the Out's lists
	queued  bool // and that is the queue; or it was, and is to have its place again
	blocked bool // somebody has more to send than windows let them
	wake    chan struct{}
	err     error // why nothing more is sent
	ended   bool  // END_STREAM was sent
}
