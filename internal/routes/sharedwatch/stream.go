package sharedwatch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/run"
)

const (
	// headerTimeout limits the wait for the beginning of a response. Watches of servers that send no header before the
	// first event are not shared.
	headerTimeout = 5 * time.Second
	// listTimeout limits a list.
	listTimeout = 30 * time.Second
	// maxList limits a list, and maxLine an event, in bytes.
	maxList = 64 << 20
	maxLine = 8 << 20
	// maxUnread limits the end of a list that is read only so that the connection can be reused.
	maxUnread = 64 << 10
	// firstRetry and maxRetry are the pauses before an interrupted watch is restarted, and giveUp is how long that is
	// retried.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 2 * time.Second
	giveUp     = 10 * time.Second
	// lingers is how long a stream continues without a client.
	lingers = 10 * time.Second
	// checkInterval is how often a stream checks whether it is still needed.
	checkInterval = time.Second
)

// stream is the watch of one collection of an extension server.
type stream struct {
	watches    *Watches
	collection Request       // the watched collection, regardless of where its client begins
	ready      chan struct{} // closed when the watch has begun, or has failed to

	mu      sync.RWMutex // guards the fields below
	history history
	changed chan struct{} // closed at the next change
	begun   bool          // the watch has begun
	ended   bool
	// last is sent to clients when the stream has ended. Nil if nothing is sent.
	last    []byte
	listing chan struct{} // closed when the objects are known, or cannot be; nil until a client requests them
	// asking is closed when the extension server has returned the resource version that it has reached. Nil if no such
	// request is running.
	asking chan struct{}

	cancel context.CancelCauseFunc
	number int64 // streams are numbered in the order of their creation

	// The fields below are guarded by Watches.mu.
	clients   int
	abandoned time.Time // when the last client left
	owner     string    // the user to whom held is charged
	held      int64     // bytes that are kept
	reading   int64     // bytes that are being read, for any user
	evicted   bool      // nothing is kept any more
}

// change wakes all waiting goroutines. The caller must hold mu.
func (t *stream) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// run watches until no client needs the stream any more, or the server ends it.
func (t *stream) run(ctx context.Context) {
	var looking sync.WaitGroup
	looking.Go(func() { t.cancelWhenUnwanted(ctx) })
	err := t.watch(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	t.cancel(nil)
	looking.Wait()
	t.mu.Lock()
	t.ended = true
	var gone *expiredError
	if errors.As(err, &gone) {
		t.last = expired(gone.message)
	}
	begun := t.begun
	t.change()
	t.mu.Unlock()
	t.watches.remove(t, err, begun)
	if !begun {
		close(t.ready)
	}
}

// cancelWhenUnwanted ends the stream when it has had no client for a while, or the APIRoute no longer shares it. It also
// drops events that exceed the space, because other streams began.
func (t *stream) cancelWhenUnwanted(ctx context.Context) {
	for run.Pause(ctx, checkInterval) {
		if t.watches.unwanted(t) || !t.collection.Current() || t.shrink() != nil {
			t.cancel(nil)
			return
		}
	}
}

func (t *stream) shrink() error {
	room := t.watches.ringSize()
	t.mu.Lock()
	before := t.history.bytes
	t.history.maxBytes = room
	t.history.trim()
	changed := before != t.history.bytes
	t.mu.Unlock()
	if !changed {
		return nil
	}
	return t.watches.charge(t)
}

// expiredError is a response of the server that requires its client to list again.
type expiredError struct{ message string }

func (e *expiredError) Error() string { return e.message }

// start lists, and returns the resource version at which the watch begins. It is never a version that a client sent. The
// list has no objects if the first client does not need them.
func (t *stream) start(ctx context.Context) (version string, err error) {
	if t.collection.isInitial() {
		if err = t.listObjects(ctx, t.collection.User); err == errTooMuch {
			t.forgoObjects()
			err = t.askVersion(ctx, t.collection.User)
		}
	} else {
		err = t.askVersion(ctx, t.collection.User)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.history.base, err
}

// forgoObjects records that the objects cannot be known. Clients that begin after a resource version still share the
// stream.
func (t *stream) forgoObjects() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listing = make(chan struct{})
	close(t.listing)
}

func (t *stream) watch(ctx context.Context) error {
	version, err := t.start(ctx)
	if err != nil {
		return err
	}
	failing, pause := time.Time{}, firstRetry
	for {
		began := time.Now()
		more, err := t.watchOnce(ctx, version)
		var gone *expiredError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &gone), errors.Is(err, errNotAnEvent), errors.Is(err, errTooMuch), !t.hasBegun():
			return err
		}
		version = t.latest()
		if more || err == nil && time.Since(began) > maxRetry { // it worked for a while
			failing, pause = time.Time{}, firstRetry
		} else if failing.IsZero() {
			failing = began
		}
		if !failing.IsZero() && time.Since(failing) > giveUp {
			return fmt.Errorf("the watch could not be begun again: %w", err)
		}
		run.Pause(ctx, pause)
		pause = min(2*pause, maxRetry)
	}
}

func (t *stream) hasBegun() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.begun
}

func (t *stream) latest() string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.history.latest()
}

// watchOnce watches until the server ends it. more reports that there were events.
func (t *stream) watchOnce(ctx context.Context, version string) (more bool, err error) {
	resp, err := t.get(ctx, "watch=true&allowWatchBookmarks=true&resourceVersion="+url.QueryEscape(version))
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }() // reading the body already returned any error
	t.mu.Lock()
	if !t.begun {
		t.begun = true
		close(t.ready)
	}
	t.mu.Unlock()
	lines := bufio.NewReaderSize(resp.Body, 4<<10)
	reading := &reservation{stream: t, user: t.collection.User, begun: true}
	defer reading.free()
	for {
		line, err := readLine(lines, reading)
		if err == io.EOF {
			return more, nil
		}
		if err != nil {
			return more, err
		}
		if err := t.take(line); err != nil {
			return more, err
		}
		if reading.bytes > 0 {
			reading.free()
		}
		more = true
	}
}

// readLine reads a line into newly allocated memory. Memory for a large line is reserved while it is read.
func readLine(from *bufio.Reader, reading *reservation) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errTooMuch
		}
		if len(line)+len(part) > largeLine {
			if err := reading.add(readFactor * int64(len(part))); err != nil {
				return nil, err
			}
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if err == io.EOF && len(bytes.TrimSpace(line)) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// take parses a line and adds its event to the history.
func (t *stream) take(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	e, err := parse(line)
	if err != nil {
		return err
	}
	if e.status != nil {
		if e.status.Code == http.StatusGone {
			return &expiredError{e.status.Message}
		}
		return fmt.Errorf("the extension server ended the watch: %s", e.status.Message)
	}
	room := t.watches.ringSize()
	t.mu.Lock()
	t.history.maxBytes = room
	t.history.add(e)
	t.change()
	t.mu.Unlock()
	if !e.bookmark {
		t.watches.config.Metrics.Event(t.collection.Of)
	}
	return t.watches.charge(t)
}

// get sends a request for the collection with the identity of the front door, and returns a response with JSON.
func (t *stream) get(ctx context.Context, query string) (*http.Response, error) {
	if t.collection.Query != "" {
		query = t.collection.Query + "&" + query
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(headerTimeout, cancel)
	resp, err := t.collection.Backend.RoundTrip((&http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "backend", Path: t.collection.Path, RawQuery: query},
		Header: http.Header{
			"Accept": {"application/json"}, "User-Agent": {"portico"},
			"X-Remote-User": {"system:kube-aggregator"}, "X-Remote-Group": {"system:masters"},
		},
	}).WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelled{resp.Body, cancel}
	if !late.Stop() {
		err = errors.New("no response in time")
	} else if resp.StatusCode == http.StatusGone {
		err = &expiredError{"the extension server does not have this resource version any more"}
	} else if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		err = fmt.Errorf("the extension server answered %d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// cancelled is a body that cancels its context on Close.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// list reads the collection for a user, or only its resource version.
func (t *stream) list(ctx context.Context, user string, objects bool, use func(*list) error) error {
	leave, err := t.watches.enterList(ctx, t.collection.Of, user)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	query := ""
	if !objects {
		query = "limit=1"
	}
	resp, err := t.get(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // reading the body already returned any error
	reading := &reservation{stream: t, user: user}
	defer reading.free()
	skipped := reading.free // of an item that is not kept
	if objects {
		skipped = nil
	}
	l, err := readList(&reservingReader{resp.Body, reading, maxList}, skipped)
	if err != nil {
		return err
	}
	reading.free()
	if !objects {
		_, _ = io.CopyN(io.Discard, resp.Body, maxUnread) // otherwise the connection is closed
	}
	return use(l)
}

// listObjects lists once, so that clients can begin with initial events.
func (t *stream) listObjects(ctx context.Context, user string) error {
	return t.list(ctx, user, true, func(l *list) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.history.base = cmp.Or(t.history.base, l.version)
		err := t.history.setObjects(l)
		if err == nil {
			t.history.reach(l.version)
			err = t.watches.holdObjects(t, user, t.history.size)
		}
		if err != nil {
			t.history.objects, t.history.size = nil, 0
		}
		return err
	})
}

// askVersion lists no objects, to determine the resource version that the extension server has reached.
func (t *stream) askVersion(ctx context.Context, user string) error {
	return t.list(ctx, user, false, func(l *list) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.history.base = cmp.Or(t.history.base, l.version)
		t.history.reach(l.version)
		return nil
	})
}

// hasReached reports whether the extension server has reached the resource version of a client, or the stream cannot place
// it. A watch from a future version is not shared: the server decides how to answer.
func (t *stream) hasReached(ctx context.Context, user, version string) bool {
	for range 2 { // the first response may be to a request from before the version existed
		if t.knowsReached(version) {
			return true
		}
		select {
		case <-t.requestVersion(user):
		case <-ctx.Done():
			return false
		}
	}
	return t.knowsReached(version)
}

func (t *stream) knowsReached(version string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.history.hasReached(version)
}

// requestVersion requests the extension server's resource version, unless a request is running, and returns a channel that is closed
// afterwards.
func (t *stream) requestVersion(user string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	asking := t.asking
	if asking == nil {
		asking = make(chan struct{})
		if t.asking = asking; !t.watches.do(func(ctx context.Context) { t.answerVersion(ctx, user) }) {
			close(asking)
		}
	}
	return asking
}

// answerVersion requests the version that the extension server has reached, for the clients that wait for it.
func (t *stream) answerVersion(ctx context.Context, user string) {
	_ = t.askVersion(ctx, user) // without a version, the clients are not shared
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.asking)
	t.asking = nil
}

// findObjects lists once for the clients that wait for initial events. Without objects they are not shared. If the list
// failed only because of the user's share, or because no slot was free, the next client may repeat it.
func (t *stream) findObjects(ctx context.Context, user string) {
	err := t.listObjects(ctx, user)
	_ = t.watches.charge(t) // an event may have been charged meanwhile; a stream that must end is canceled
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.listing)
	if errors.Is(err, errShare) || errors.Is(err, errListsBusy) {
		t.listing = nil
	}
}

// objectsKnown waits until the objects are known. It returns false if they cannot be.
func (t *stream) objectsKnown(ctx context.Context, user string) bool {
	t.mu.Lock()
	if t.history.objects == nil && t.listing == nil {
		t.listing = make(chan struct{})
		if !t.watches.do(func(ctx context.Context) { t.findObjects(ctx, user) }) {
			close(t.listing)
		}
	}
	known, listing := t.history.objects != nil, t.listing
	t.mu.Unlock()
	if known {
		return true
	}
	select {
	case <-listing:
	case <-ctx.Done():
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.history.objects != nil
}

// isInitial reports whether a client begins with the current objects.
func (q *Request) isInitial() bool {
	return q.InitialEvents || q.Version == "" || q.Version == "0"
}
