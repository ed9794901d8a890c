package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"portico.dev/internal/filters"
)

// body is a response that blocks after its text until more is closed.
type body struct {
	io.Reader
	ctx  context.Context
	more <-chan struct{}
	rest string
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != io.EOF || b.more == nil {
		return n, err
	}
	select {
	case <-b.more:
		b.Reader, b.more = strings.NewReader(b.rest), nil
		return n, nil
	case <-b.ctx.Done():
		return n, b.ctx.Err()
	}
}

func (b *body) Close() error { return nil }

func jsonOf(b io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: b}
}

// listOf is a list with this number of bytes. It ends when more is closed.
func listOf(size int, more <-chan struct{}) func(context.Context, bool, []string, url.Values) (*http.Response, error) {
	return func(ctx context.Context, _ bool, _ []string, _ url.Values) (*http.Response, error) {
		text := fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"pad":%q,"items":[`, strings.Repeat("x", size))
		return jsonOf(&body{Reader: strings.NewReader(text), ctx: ctx, more: more, rest: "]}"}), nil
	}
}

func collectionOf(id string, get func(context.Context, bool, []string, url.Values) (*http.Response, error)) *Collection {
	return &Collection{ID: id, Epoch: 1, Lifetime: time.Hour, Sources: []Source{{Name: "one", Owns: func(string) bool { return true }, Get: get}}}
}

func requestOf(ctx context.Context, name, query string) *filters.Request {
	ctx = apirequest.WithUser(ctx, &user.DefaultInfo{Name: name})
	return filters.RequestOf(httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/widgets?"+query, nil))
}

// A56: many collections are listed at once, each with the largest permitted size.
func TestA56MergedListIsChargedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 << 10
		m := New(8 * byteFactor * size)
		more := make(chan struct{})
		var running sync.WaitGroup
		codes := make(chan int, 100)
		list := func(name string, i int) {
			running.Go(func() {
				w := httptest.NewRecorder()
				m.Serve(w, requestOf(t.Context(), name, ""), collectionOf(fmt.Sprint(name, i), listOf(size, more)), false)
				if w.Code == http.StatusTooManyRequests && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"reason":"TooManyRequests"`)) {
					t.Errorf("list without room: headers %v, body %s, want a Status and Retry-After", w.Header(), w.Body)
				}
				codes <- w.Code
			})
		}
		for i := range 30 {
			list("attacker", i)
			synctest.Wait()
		}
		if got := m.Charged(); got > m.budget.max/2 || got < m.budget.max/4 {
			t.Errorf("bytes charged for the lists of one user = %d, want at most %d", got, m.budget.max/2)
		}
		list("victim", 0)
		synctest.Wait()
		close(more)
		running.Wait()
		got := map[int]int{}
		for range 31 {
			got[<-codes]++
		}
		if got[http.StatusOK] != 4 || got[http.StatusTooManyRequests] != 27 { // three lists of one user use its whole share
			t.Errorf("status codes of the lists = %v, want 4 of 200 and 27 of 429", got)
		}
		if m.budget.bytes != 0 || len(m.budget.users) != 0 {
			t.Errorf("after the lists, %d bytes of %d users are charged, want 0", m.budget.bytes, len(m.budget.users))
		}
	})
}

func TestA56ListAboveUserShareReturns413(t *testing.T) {
	m := New(600 << 10)
	w := httptest.NewRecorder()
	m.Serve(w, requestOf(t.Context(), "alice", ""), collectionOf("id", listOf(101<<10, nil)), false)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("status of a list over the share of any user = %d, want 413", w.Code)
	}
}

func TestA56UserIsLimitedToHalfOfMergedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(0)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 * maxLists {
			running.Go(func() {
				m.Serve(httptest.NewRecorder(), requestOf(ctx, "attacker", ""), collectionOf("id", listOf(1, make(chan struct{}))), false)
			})
		}
		synctest.Wait()
		began := time.Now()
		ends := make(chan struct{})
		close(ends)
		w := httptest.NewRecorder()
		m.Serve(w, requestOf(t.Context(), "victim", ""), collectionOf("id", listOf(1, ends)), false)
		if waited := time.Since(began); w.Code != http.StatusOK || waited > 0 {
			t.Errorf("list of another user = %d after %s, want 200 at once", w.Code, waited)
		}
		cancel()
		running.Wait()
	})
}

// blockedWriter is a client that does not read.
type blockedWriter struct {
	http.ResponseWriter
	unblock <-chan struct{}
	text    bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.unblock
	return w.text.Write(p)
}

func (w *blockedWriter) Flush() {}

// A56: without the budget, 64 events of 8 MiB could wait for each client.
func TestA56QueuedEventsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(2 << 20)
		event := `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","resourceVersion":"6"},"pad":"` + strings.Repeat("x", 200<<10) + `"}}` + "\n"
		c := collectionOf("id", func(ctx context.Context, watch bool, _ []string, _ url.Values) (*http.Response, error) {
			if !watch {
				return nil, errors.New("it is not listed")
			}
			return jsonOf(&body{Reader: strings.NewReader(strings.Repeat(event, 50)), ctx: ctx, more: make(chan struct{})}), nil
		})
		unblock := make(chan struct{})
		w := &blockedWriter{ResponseWriter: httptest.NewRecorder(), unblock: unblock}
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.Serve(w, requestOf(t.Context(), "slow", "watch=true&resourceVersion="+c.position([]string{"5"})), c, true)
		}()
		synctest.Wait()
		if got := m.budget.bytes; got > m.budget.max/2 || got < m.budget.max/4 {
			t.Errorf("bytes charged for waiting events = %d, want at most %d", got, m.budget.max/2)
		}
		close(unblock)
		<-done
		if got := w.text.String(); !strings.HasPrefix(got, event) || !strings.Contains(got, `"code":429`) {
			t.Errorf("end of the watch = %.200s, want the events before it and an error 429", got[max(0, len(got)-300):])
		}
		if m.budget.bytes != 0 {
			t.Errorf("after the watch, %d bytes are charged, want 0", m.budget.bytes)
		}
	})
}
