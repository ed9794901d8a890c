package client

import (
	"time"

	"portico.dev/internal/http2/frame"
)

// watch is what Look knows from the look before.
type watch struct {
	pingAfter, pingFor, late, protocol int // looks

	seen  uint64 // reads at the last look
	still int    // looks in a row that found no more
	asked int    // looks since a ping was sent, with the one that sent it; 0: none was
	turn  int
}

func (w *watch) begin(c *Config) {
	w.pingAfter, w.pingFor, w.late = looks(c.PingAfter, c.Every), looks(c.PingTimeout, c.Every), looks(c.HeaderTimeout, 4*c.Every)
	w.protocol = looks(c.ProtocolTimeout, c.Every)
}

func looks(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

// Look looks for what did not come in time. It is to be called every Config.Every, by one goroutine at a time, and does
// not wait. idle has a connection without requests pinged too.
//
// Looks are counted and not time: when this process does not get to run for a second (an overloaded machine, a virtual
// machine that was paused), the clock goes on, answers lie unread in the sockets, and by the clock every connection would
// be given up at the same time, with the requests on it. A look that comes late is one look all the same.
func (c *Conn) Look(idle bool) {
	w := &c.watch
	c.looks.Add(1)
	if c.held.Load() > 0 {
		c.release()
	}
	if w.turn++; w.turn >= w.late {
		w.turn = 0
		c.tooLate()
	}
	if c.late() {
		return
	}
	if now := c.reads.Load(); now != w.seen {
		w.seen, w.still, w.asked = now, 0, 0
		return
	}
	w.still++
	if w.asked > 0 {
		if w.asked++; w.asked > w.pingFor {
			c.fail(&Error{Silent, errFellSilent})
		}
		return
	}
	if w.still < w.pingAfter {
		return
	}
	switch busy := c.busy(); {
	case busy:
		w.asked = 1
		_ = c.out.Probe([8]byte{}) // the connection's failure is told elsewhere
	case idle:
		w.asked = 1
		_ = c.out.Ping([8]byte{}) // as above; nothing else is on its way, so that there is nothing to wait for
	}
}

// late gives the connection up when something is missing that the protocol asks for.
func (c *Conn) late() bool {
	now, most := c.looks.Load(), int64(c.watch.protocol)
	var why frame.ConnError
	switch began := c.blockSince.Load(); {
	case began > 0 && now-began >= most:
		why = frame.ConnError{Code: frame.EnhanceYourCalm, Why: "the header block does not end"}
	case now > most && !c.acknowledged.Load():
		why = frame.ConnError{Code: frame.SettingsTimeout, Why: "SETTINGS are not acknowledged"}
	default:
		return false
	}
	c.fail(&Error{Broken, why})
	return true
}

// blockBegan is told, by the reader, of a header block that is not whole.
func (c *Conn) blockBegan() {
	if c.blockSince.Load() == 0 {
		c.blockSince.Store(c.looks.Load() + 1)
	}
}

func (c *Conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) > 0
}

// quarters is how often tooLate must find a stream waiting: the first time may come as soon as it has begun.
const quarters = 5

// tooLate gives up the streams that have waited for their headers.
func (c *Conn) tooLate() {
	var late []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if s.sent && !s.told {
			if s.waited++; s.waited >= quarters {
				late = append(late, s)
			}
		}
	}
	c.mu.Unlock()
	for _, s := range late {
		s.fail(&Error{Late, errLate}, frame.Cancel)
	}
}

// release has the heads go on that wait for the rest of a short response: it is slow.
func (c *Conn) release() {
	var slow []*stream
	c.mu.Lock()
	for _, s := range c.streams {
		if s.held {
			slow = append(slow, s)
		}
	}
	c.mu.Unlock()
	for _, s := range slow {
		s.tell()
	}
}
