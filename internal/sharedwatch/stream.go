package sharedwatch

import (
	"bufio"
	"bytes"
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
	// headerTimeout bounds the wait for the beginning of a response. Servers that send no header before the first event have none.
	headerTimeout = 5 * time.Second
	// listTimeout bounds a list.
	listTimeout = 30 * time.Second
	// maxList bounds a list, and maxLine an event, in bytes.
	maxList = 64 << 20
	maxLine = 8 << 20
	// firstRetry and maxRetry are the pauses before a watch that broke off is begun again, and giveUp is for how long that is tried.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 2 * time.Second
	giveUp     = 10 * time.Second
	// lingers is how long a stream goes on without a client.
	lingers = 10 * time.Second
	// checkInterval is how often a stream without events looks whether it is still wanted.
	checkInterval = time.Second
)

// stream is the watch of one collection of an extension server.
type stream struct {
	watches *Watches
	of      Request       // what is watched; not where its client begins
	ready   chan struct{} // closed when the watch has begun, or has failed to

	mu      sync.RWMutex // guards what follows
	history history
	changed chan struct{} // closed at the next change
	begun   bool          // the watch has begun
	ended   bool
	// last is sent to clients when the stream has ended. Nil: nothing is.
	last    []byte
	listing chan struct{} // closed when the objects are known, or cannot be; nil: nobody has asked for them

	clients   int       // guarded by Watches.mu
	abandoned time.Time // when the last client left; likewise
}

// change tells everybody who waits. The caller holds mu.
func (t *stream) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// run watches from a resource version until nobody needs it any more, or the server ends it. Without a version it lists first.
func (t *stream) run(ctx context.Context, version string) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { t.cancelWhenUnwanted(ctx, cancel) })
	err := t.watch(ctx, version)
	cancel()
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

// cancelWhenUnwanted ends the stream when it has had no client for a while, or the APIRoute does not say any more that it is shared.
func (t *stream) cancelWhenUnwanted(ctx context.Context, cancel context.CancelFunc) {
	for run.Pause(ctx, checkInterval) {
		if t.watches.unwanted(t) || !t.of.Current() {
			cancel()
			return
		}
	}
}

// expiredError is a server that says that its client must list again.
type expiredError struct{ message string }

func (e *expiredError) Error() string { return e.message }

func (t *stream) watch(ctx context.Context, version string) error {
	if version == "" {
		l, err := t.list(ctx)
		if err != nil {
			return err
		}
		version = l.version
		t.mu.Lock()
		t.history.base = version
		err = t.history.setObjects(l)
		t.mu.Unlock()
		if err == nil {
			err = t.watches.charge(t)
		}
		if err != nil {
			return err
		}
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
	defer func() { _ = resp.Body.Close() }() // an error of the body was met while it was read
	t.mu.Lock()
	if !t.begun {
		t.history.base, t.begun = version, true
		close(t.ready)
	}
	t.mu.Unlock()
	lines := bufio.NewReaderSize(resp.Body, 4<<10)
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			return more, nil
		}
		if err != nil {
			return more, err
		}
		if err := t.take(line); err != nil {
			return more, err
		}
		more = true
	}
}

// readLine reads a line of its own memory.
func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errTooMuch
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

// take takes a line over.
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
	t.mu.Lock()
	t.history.add(e)
	t.change()
	t.mu.Unlock()
	if !e.bookmark {
		t.watches.config.Metrics.Event(t.of.Of)
	}
	return t.watches.charge(t)
}

// get sends a request for the collection, as the front door itself, and returns a response with JSON.
func (t *stream) get(ctx context.Context, query string) (*http.Response, error) {
	if t.of.Query != "" {
		query = t.of.Query + "&" + query
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(headerTimeout, cancel)
	resp, err := t.of.Backend.RoundTrip((&http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "backend", Path: t.of.Path, RawQuery: query},
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

// cancelled is a body whose end releases its context.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

func (t *stream) list(ctx context.Context) (*list, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := t.get(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // an error of the body was met while it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxList+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxList {
		return nil, errTooMuch
	}
	return parseList(body)
}

// findObjects lists once, so that clients can begin with initial events.
func (t *stream) findObjects(ctx context.Context) {
	l, err := t.list(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		_ = t.history.setObjects(l) // or the objects stay unknown
	}
	close(t.listing)
}

// objectsKnown waits until the objects are known. False: they cannot be.
func (t *stream) objectsKnown(ctx context.Context) bool {
	t.mu.Lock()
	if t.history.objects == nil && t.listing == nil {
		t.listing = make(chan struct{})
		if !t.watches.do(t.findObjects) {
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
	known = t.history.objects != nil
	t.mu.RUnlock()
	return known && t.watches.charge(t) == nil
}

// isInitial reports whether a client begins with the objects that there are.
func (q *Request) isInitial() bool {
	return q.InitialEvents || q.Version == "" || q.Version == "0"
}
