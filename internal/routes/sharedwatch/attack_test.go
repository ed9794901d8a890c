package sharedwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// requestOf returns a watch of a user with a separate key.
func (h *env) requestOf(user, key, version string) *Request {
	q := h.request(version)
	q.User, q.Key = user, key
	return q
}

// endlessList is a list without end. It counts the lists that are read at the same time.
type endlessList struct {
	ctx     context.Context
	h       *env
	sent    int
	pause   time.Duration
	open    *int
	maxOpen *int
	peak    *int64
}

func (l *endlessList) Read(p []byte) (int, error) {
	select {
	case <-time.After(l.pause):
	case <-l.ctx.Done():
		return 0, l.ctx.Err()
	}
	l.h.Watches.mu.Lock()
	*l.peak = max(*l.peak, l.h.bytes)
	l.h.Watches.mu.Unlock()
	text := `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"100"},"items":[`
	if l.sent > 0 {
		text = fmt.Sprintf(`{"metadata":{"name":"%d","text":%q}},`, l.sent, strings.Repeat("x", 400))
	}
	l.sent++
	return copy(p, text), nil
}

func (l *endlessList) Close() error {
	l.h.server.mu.Lock()
	defer l.h.server.mu.Unlock()
	*l.open--
	return nil
}

// listEndlessly lets the server respond to lists without end, with a pause before each part.
func (h *env) listEndlessly(pause time.Duration) (maxOpen *int, peak *int64) {
	open, maxOpen, peak := 0, new(int), new(int64)
	h.server.body = func(ctx context.Context) io.ReadCloser { // called with the server's mu held
		open++
		*maxOpen = max(*maxOpen, open)
		return &endlessList{ctx: ctx, h: h, pause: pause, open: &open, maxOpen: maxOpen, peak: peak}
	}
	return maxOpen, peak
}

// A56: 30 watches of large collections by a user who may only watch.
func TestA56ListIsChargedWhileItIsRead(t *testing.T) {
	const maxBytes = 256 << 10
	during(t, Config{MaxBytes: maxBytes}, func(h *env) {
		maxOpen, peak := h.listEndlessly(time.Millisecond)
		var clients []*client
		for i := range 30 {
			clients = append(clients, h.watch(h.requestOf("attacker", fmt.Sprint(i), "")))
		}
		for i, c := range clients {
			if <-c.done; c.shared {
				t.Errorf("watch %d of a list over the limit is shared, want it unshared", i)
			}
		}
		if *peak < maxBytes/4 || *peak > share(int64(maxBytes)) {
			t.Errorf("lists of one user took up to %d bytes, want at most %d", *peak, share(maxBytes))
		}
		if want := share(maxLists); *maxOpen > want {
			t.Errorf("one user had %d lists in progress at once, want at most %d", *maxOpen, want)
		}
	})
}

func TestA56SlowListDoesNotDelayOtherUsers(t *testing.T) {
	during(t, Config{}, func(h *env) {
		h.listEndlessly(time.Hour)
		began := time.Now()
		var attacks []*client
		for i := range 30 {
			attacks = append(attacks, h.watch(h.requestOf("attacker", fmt.Sprint(i), "")))
		}
		synctest.Wait()
		victim := h.watch(h.requestOf("victim", "key", "100"))
		victim.wants("")
		h.server.set("a")
		victim.wants("ADDED/a/101")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the watch of another user began after %s, want at once", waited)
		}
		time.Sleep(listSlotTimeout)
		synctest.Wait()
		ended := 0
		for _, c := range attacks {
			select {
			case <-c.done:
				ended++
			default:
			}
		}
		if want := len(attacks) - share(maxLists); ended != want {
			t.Errorf("%d watches that wait for a list were given up after %s, want %d", ended, listSlotTimeout, want)
		}
		for _, c := range attacks {
			c.cancel()
		}
	})
}

// A56: an event counts while it is read. The attacker loses its stream. The user whose stream has grown does not.
func TestA56EventIsChargedWhileItIsRead(t *testing.T) {
	during(t, Config{MaxBytes: 1 << 20}, func(h *env) {
		c := h.watch(h.request("100"))
		c.wants("")
		h.server.mu.Lock()
		for w := range h.server.watchers {
			w.queue <- `{"type":"ADDED","object":{"metadata":{"name":"` + strings.Repeat("x", 1<<20)
		}
		h.server.mu.Unlock()
		<-c.done
		if h.bytes != 0 {
			t.Errorf("%d bytes are charged after the stream, want 0", h.bytes)
		}
	})
}

func TestA57FutureVersionDoesNotPinStream(t *testing.T) {
	during(t, Config{}, func(h *env) {
		for range 2 { // It starts the stream and then joins it.
			attack := h.watch(h.requestOf("attacker", "key", "999999999999"))
			<-attack.done
			if attack.shared {
				t.Error("a watch from a version of the future is shared, want the server to decide")
			}
			victim := h.watch(h.requestOf("victim", "key", strconv.Itoa(h.server.version)))
			victim.wants("")
			h.server.set("a")
			if got := victim.events(); strings.Count(got, "/a/") != 1 {
				t.Errorf("the other client got %q, want one event", got)
			}
		}
		if got := h.server.requests["watch"]; got != 1 {
			t.Errorf("the server has %d watches, want 1", got)
		}
	})
}

func TestA57PastVersionDoesNotEndStream(t *testing.T) {
	during(t, Config{}, func(h *env) {
		attack := h.watch(h.requestOf("attacker", "key", "1"))
		<-attack.done
		victim := h.watch(h.requestOf("victim", "key", "100"))
		victim.wants("")
		h.server.set("a")
		if victim.wants("ADDED/a/101"); attack.shared {
			t.Error("a watch from a version that the server has forgotten is shared, want the server to decide")
		}
	})
}

func TestA57UserIsLimitedToHalfOfStreams(t *testing.T) {
	during(t, Config{MaxStreams: 8}, func(h *env) {
		var attacks []*client
		for i := range 20 {
			attacks = append(attacks, h.watch(h.requestOf("attacker", fmt.Sprint(i), "100")))
		}
		synctest.Wait()
		for i := range 4 {
			h.watch(h.requestOf("victim", fmt.Sprint("v", i), "100")).wants("")
		}
		if len(h.streams) != 8 || h.users["attacker"].streams != 4 || h.users["victim"].streams != 4 {
			t.Errorf("there are %d streams, %d of the attacker, want 8 and 4", len(h.streams), h.users["attacker"].streams)
		}
		for _, c := range attacks {
			c.end()
		}
	})
}

// other returns a server with the given number of objects.
func (h *env) other(objects int) *server {
	s := newServer()
	for i := range objects {
		s.set(strconv.Itoa(i))
	}
	h.others = append(h.others, s)
	return s
}

func TestA57StreamOfLargestUserIsClosed(t *testing.T) {
	during(t, Config{MaxBytes: 40_000}, func(h *env) {
		initial := func(user string, objects int) *client {
			q := h.requestOf(user, user, "")
			q.Backend = h.other(objects)
			return h.watch(q)
		}
		attacks := []*client{initial("attacker", 82), initial("accomplice", 80)}
		for _, c := range attacks {
			if got := strings.Count(c.events(), "ADDED"); got < 80 {
				t.Fatalf("a client got %d objects, want all", got)
			}
		}
		victim := h.watch(h.requestOf("victim", "victim", ""))
		victim.wants("")
		for i := range 60 {
			h.server.set(strconv.Itoa(i))
			synctest.Wait()
		}
		if got := strings.Count(victim.events(), "ADDED"); got != 60 {
			t.Errorf("the client whose stream grew got %d events, want 60", got)
		}
		<-attacks[0].done
		if got := len(h.streams); got != 2 || h.bytes > h.config.MaxBytes {
			t.Errorf("there are %d streams with %d bytes, want 2 with at most %d", got, h.bytes, h.config.MaxBytes)
		}
	})
}

// A57: a user who has used its share does not prevent other users from sharing the same collection.
func TestA57RejectionOfUserDoesNotAffectOtherUsers(t *testing.T) {
	during(t, Config{MaxBytes: 40_000}, func(h *env) {
		for i := range 50 {
			h.server.set(strconv.Itoa(i)) // up to 150
		}
		q := h.requestOf("attacker", "large", "")
		q.Backend = h.other(60)
		h.watch(q).events()
		for _, version := range []string{"", "150"} { // It starts no stream, and one without objects.
			if c := h.watch(h.requestOf("attacker", "key"+version, version)); c.events() != "" {
				t.Errorf("events of a client whose user has used its share = %q, want none", c.events())
			}
			c := h.watch(h.requestOf("victim", "key"+version, ""))
			if got := strings.Count(c.events(), "ADDED"); got != 50 {
				t.Errorf("a client of another user got %d objects, want 50", got)
			}
			c.end()
			time.Sleep(lingers + 2*checkInterval)
		}
	})
}

func TestObjectsAboveMemoryLimitAreNotShared(t *testing.T) {
	during(t, Config{MaxBytes: 20_000}, func(h *env) {
		for i := range 100 {
			h.server.set(strconv.Itoa(i)) // up to 200
		}
		large := h.watch(h.request(""))
		<-large.done
		c := h.watch(h.request("200"))
		c.wants("")
		h.server.set("a")
		if c.wants("ADDED/a/201"); large.shared {
			t.Error("client received objects over the limit, want none")
		}
	})
}

func TestEventMemoryIsSharedByAllStreams(t *testing.T) {
	during(t, Config{MaxBytes: 20_000}, func(h *env) {
		var clients []*client
		for i := range 5 {
			clients = append(clients, h.watch(h.requestOf(fmt.Sprint(i), fmt.Sprint(i), "100")))
		}
		synctest.Wait()
		for i := range 100 {
			h.server.set(strconv.Itoa(i))
			synctest.Wait()
		}
		time.Sleep(2 * checkInterval)
		synctest.Wait()
		sum := int64(0)
		for _, s := range h.streams {
			s.mu.RLock()
			sum += s.history.bytes
			s.mu.RUnlock()
		}
		if sum > h.config.MaxBytes/2 || sum < h.config.MaxBytes/4 {
			t.Errorf("the streams keep events of %d bytes, want at most %d", sum, h.config.MaxBytes/2)
		}
		for _, c := range clients {
			if got := strings.Count(c.events(), "ADDED"); got != 100 {
				t.Errorf("a client got %d events, want 100", got)
			}
		}
	})
}

// A56: clients that requested the objects and did not read them used to hold one copy each.
func TestA56StalledClientsHoldNoObjectCopies(t *testing.T) {
	key := objectKey{"a", "w"}
	h := &history{maxFrames: 1, maxBytes: 1, base: "1", objects: map[objectKey]json.RawMessage{key: json.RawMessage(`{"metadata":{}}`)}}
	objects, _, _ := h.initial(false)
	if len(objects) != 1 || &objects[0][0] != &h.objects[key][0] {
		t.Errorf("a client that begins gets %q, want the object of the history itself", objects)
	}
}

// A57: a watch from a future version makes the front door read the current one. This must not read a complete list.
func TestA57CurrentVersionIsReadWithoutItems(t *testing.T) {
	items := &repeat{text: `{"metadata":{"name":"a"}},`}
	l, err := readList(io.MultiReader(strings.NewReader(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[`), items), func() {})
	if err != nil || l.version != "7" || items.n > 64<<10 {
		t.Errorf("readList() = %v, %v after %d bytes of items, want version 7 after at most 64 KiB", l, err, items.n)
	}
}

// repeat is an endless text.
type repeat struct {
	text string
	n    int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.text)
	r.n += n
	return n, nil
}

func TestReadList(t *testing.T) {
	const version = `"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"}`
	for body, want := range map[string]string{
		`{` + version + `,"items":[{"metadata":{"name":"a"}}]}`:                 `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a"}}`,
		`{"items":[{"metadata":{"name":"a"}}],"extra":[{}],` + version + `}`:    `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a"}}`,
		`{` + version + `,"items":[ {"kind":"X","metadata":{"name":"a"}} ]} `:   `{"kind":"X","metadata":{"name":"a"}}`,
		`{` + version + `,"items":null}`:                                        "",
		`{` + version + `,"items":{}}`:                                          errNotAList.Error(),
		`{` + version + `,"items":[{"metadata":{}}]}`:                           errNotAList.Error(),
		`{` + version + `,"items":[1]}`:                                         errNotAList.Error(),
		`{` + version + `,"items":[]}{}`:                                        errNotAList.Error(),
		`{` + version + `,"items":[}`:                                           errNotAList.Error(),
		`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`:  errNotAList.Error(),
		`{"kind":"AList","apiVersion":"v1","metadata":{"resourceVersion":"0"}}`: errNotAList.Error(),
		`{"kind":1}`: errNotAList.Error(),
		`[]`:         errNotAList.Error(),
		`{` + version + `,"items":[{"metadata":{"name":"a"}}`: io.ErrUnexpectedEOF.Error(),
	} {
		got := ""
		l, err := readList(strings.NewReader(body), nil)
		if err != nil {
			got = err.Error()
		} else {
			got = string(l.objects[objectKey{"", "a"}])
		}
		if got != want {
			t.Errorf("readList(%s) = %s, want %s", body, got, want)
		}
	}
}
