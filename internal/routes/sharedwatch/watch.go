package sharedwatch

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"portico.dev/internal/metrics"
)

// Watch is a watch of a client that has begun. There may be many waiting watches. The goroutine that runs one needs a small
// stack while it waits, and data that only the beginning needs is not kept.
type Watch struct {
	stream    *stream
	ctx       context.Context
	w         http.ResponseWriter
	flush     *http.ResponseController
	of        string
	bookmarks bool
	lifetime  time.Duration

	at      cursor
	initial []json.RawMessage // objects to be sent before the lines
	lines   [][]byte          // to be written next
	changed <-chan struct{}   // closed when there are new events
	ended   string            // why the response ends; empty while it continues
}

// begin sets the position of the client. It returns an error if the stream cannot serve the request.
func (c *Watch) begin(q *Request) (err error) {
	t := c.stream
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch {
	case t.ended:
		return errNotPlaced
	case !q.isInitial():
		c.at, err = t.history.after(q.Version)
		return err
	case q.Version != "" && q.Version != "0" && !hasReceived(q.Version, t.history.version):
		return errNotPlaced // the objects may be older
	}
	var bookmark []byte
	if c.initial, bookmark, c.at = t.history.initial(q.InitialEvents && q.Bookmarks); bookmark != nil {
		c.lines = [][]byte{bookmark}
	}
	return nil
}

// Leave must be called when the response is over, whether or not it failed.
func (c *Watch) Leave() { c.stream.watches.leave(c.stream) }

// Run feeds the client until it disconnects, its lifetime is over, or the stream ends.
func (c *Watch) Run() {
	end := time.NewTimer(c.lifetime)
	defer end.Stop()
	for c.ended == "" {
		select {
		case <-c.changed:
			c.send()
		case <-end.C:
			c.ended = metrics.WatchTimeout
		case <-c.ctx.Done():
			c.ended = metrics.WatchClientLeft
		}
	}
	c.stream.watches.config.Metrics.Ended(c.of, c.ended)
}

// send writes everything that the client has not received.
func (c *Watch) send() {
	c.sendInitial()
	for c.ended == "" {
		for _, line := range c.lines {
			if _, err := c.w.Write(line); err != nil {
				c.ended = metrics.WatchClientLeft
				return
			}
		}
		if c.flush.Flush() != nil {
			c.ended = metrics.WatchClientLeft
			return
		}
		if clear(c.lines); cap(c.lines) > maxBatch { // they refer to frames that the ring has dropped
			c.lines = nil
		}
		if !c.next() {
			return
		}
	}
}

// sendInitial writes the objects that existed when the client began, one at a time.
func (c *Watch) sendInitial() {
	var line []byte
	for _, object := range c.initial {
		line = append(append(append(line[:0], added...), object...), "}\n"...)
		if _, err := c.w.Write(line); err != nil {
			c.ended = metrics.WatchClientLeft
			break
		}
	}
	c.initial = nil
}

// next reads the following lines, and reports whether there may be more.
func (c *Watch) next() bool {
	t := c.stream
	t.mu.RLock()
	var err error
	c.lines, err = t.history.next(&c.at, c.bookmarks, c.lines[:0])
	ended, last, more := t.ended, t.last, c.at.place < t.history.end()
	c.changed = t.changed
	t.mu.RUnlock()
	switch {
	case err != nil:
		_, _ = c.w.Write(expired("the client read too slowly, and events that it has not seen are not kept any more; list, and watch again")) // it may be gone
		c.ended = metrics.WatchSlow
	case len(c.lines) > 0 || more:
		return true
	case ended && last != nil:
		_, _ = c.w.Write(last) // ignore the error: the client may have disconnected
		c.ended = metrics.WatchExpired
	case ended:
		c.ended = metrics.WatchUpstream
	}
	return false
}
