package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

const (
	// maxLists bounds the lists of one collection that are merged at once, so that a source that hangs keeps nobody else waiting. One user has
	// at most half of them. maxBytes is what one of them may take.
	maxLists = 16
	maxBytes = 64 << 20
	// maxEvent bounds an event.
	maxEvent = 8 << 20
	// startTimeout bounds the wait for the beginning of a response, and listTimeout a whole list.
	startTimeout = 10 * time.Second
	listTimeout  = 60 * time.Second
)

// Source is a place where some of the objects of a collection are stored.
type Source struct {
	// Name is how messages and positions refer to it.
	Name string
	// Owns reports whether the objects of a namespace are those of this source. Those that it has of other namespaces are left out.
	Owns func(namespace string) bool
	// Get sends a list or a watch of the whole collection to the source, as the client. What is not JSON is an error.
	Get func(ctx context.Context, watch bool, accept []string, query url.Values) (*http.Response, error)
}

// Collection is objects of one resource, in all namespaces or in one, that are stored at one or several sources.
type Collection struct {
	Sources []Source
	// ID and Epoch name the distribution of the objects over the sources. The epoch grows.
	ID    string
	Epoch int64
	// Lifetime is how long a watch lasts that does not say it.
	Lifetime time.Duration
}

// ErrMoved is the cause with which the context of a watch ends when other sources own the objects. Its client is told to list again.
var ErrMoved = errors.New("the objects are stored elsewhere now")

// Merger serves collections. It is safe for concurrent use.
type Merger struct {
	// initialPart is how many objects are listed at once for a watch that begins with those that there are.
	initialPart int64
	budget      budget

	mu    sync.Mutex // guards lists
	lists map[string]*slots
}

// slots are those of the lists of one ID, while somebody uses or awaits one.
type slots struct {
	taken chan struct{}
	users int
}

// enter waits until a user may merge another list of a collection, and leave ends it.
func (m *Merger) enter(ctx context.Context, id, user string) (leave func(), err error) {
	leaveUser, err := m.enterOne(ctx, id+"\x00"+user, maxLists/2)
	if err != nil {
		return nil, err
	}
	leaveAll, err := m.enterOne(ctx, id, maxLists)
	if err != nil {
		leaveUser()
		return nil, err
	}
	return func() { leaveAll(); leaveUser() }, nil
}

// enterOne waits until one of so many slots is free.
func (m *Merger) enterOne(ctx context.Context, id string, most int) (leave func(), err error) {
	m.mu.Lock()
	s := m.lists[id]
	if s == nil {
		s = &slots{taken: make(chan struct{}, most)}
		m.lists[id] = s
	}
	s.users++
	m.mu.Unlock()
	forget := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(m.lists, id)
		}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("%d lists of the same are being merged", most), 1)
	}
}

// New returns a Merger. All that it reads takes at most so many bytes; 0: MaxBytes. Beyond them, lists and watches get 429.
func New(bound int64) *Merger {
	if bound <= 0 {
		bound = MaxBytes
	}
	return &Merger{lists: map[string]*slots{}, initialPart: 500, budget: budget{max: bound, users: map[string]int64{}}}
}

// Serve answers a list or a watch. The request is authorized already; sources may authorize it once more.
func (m *Merger) Serve(w http.ResponseWriter, r *filters.Request, c *Collection, watch bool) {
	q, err := newQuery(r, c)
	if err == nil {
		if watch {
			err = m.watch(w, r.Request, c, q)
		} else {
			err = m.list(w, r.Request, c, q)
		}
	}
	if err == nil {
		return
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		w.Header().Set("Content-Type", refused.contentType)
		if refused.retryAfter != "" {
			w.Header().Set("Retry-After", refused.retryAfter)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(refused.body)))
		w.WriteHeader(refused.code)
		_, _ = w.Write(refused.body) // a client that is gone needs no answer
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = apierrors.NewInternalError(err)
	}
	respond.Error(w, r.Request, err)
}

// query is what a client asks for.
type query struct {
	form
	// rest are the parameters that each source gets: selectors, and what is not known here.
	rest     url.Values
	limit    int64
	token    string
	version  string
	match    string
	versions []string // of the sources; nil: the client has none
	// initial is whether a watch begins with the objects that there are, initialEnd whether the client is told when it has them all,
	// and newest whether it begins with none, from now on.
	initial, initialEnd, newest bool
	bookmarks                   bool
	lifetime                    time.Duration
	user                        string
}

// own are the parameters that say where a list or a watch begins or ends, and how it is written.
var own = []string{"limit", "continue", "resourceVersion", "resourceVersionMatch", "watch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "pretty", "includeObject"}

func newQuery(r *filters.Request, c *Collection) (*query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query of the request does not parse: " + err.Error())
	}
	f, ok := formOf(r.Header.Values("Accept"))
	if !ok {
		return nil, respond.NotAcceptable(respond.MediaJSON)
	}
	q := &query{
		form: f, token: values.Get("continue"), version: values.Get("resourceVersion"), match: values.Get("resourceVersionMatch"),
		bookmarks: request.IsTrue(values, "allowWatchBookmarks"), lifetime: c.Lifetime, rest: url.Values{},
	}
	if who := r.User; who != nil {
		q.user = who.GetName()
	}
	maps.Copy(q.rest, values)
	for _, name := range own {
		q.rest.Del(name)
	}
	for _, number := range []string{"limit", "timeoutSeconds"} {
		if text := values.Get(number); text != "" {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("%s must be a number, and is %q", number, text))
			}
		}
	}
	q.limit, _ = strconv.ParseInt(values.Get("limit"), 10, 64)
	if seconds, _ := strconv.ParseInt(values.Get("timeoutSeconds"), 10, 32); seconds > 0 {
		q.lifetime = time.Duration(seconds) * time.Second
	}
	if q.version != "" && q.version != "0" {
		if q.versions, err = c.versions(q.version); err != nil {
			return nil, err
		}
	}
	initial, told := values["sendInitialEvents"]
	q.initialEnd = request.IsTrue(values, "sendInitialEvents")
	q.initial = q.initialEnd || !told && q.versions == nil
	q.newest = told && len(initial) > 0 && !q.initialEnd && q.versions == nil
	switch {
	case told && q.match != string(metav1.ResourceVersionMatchNotOlderThan):
		return nil, apierrors.NewBadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	case q.token != "" && q.version != "" && q.version != "0":
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return q, nil
}

// with returns the parameters for a source, with these beside what the client said. Those without a value are left out.
func (q *query) with(pairs ...string) url.Values {
	out := url.Values{}
	maps.Copy(out, q.rest)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out.Set(pairs[i], pairs[i+1])
		}
	}
	return out
}

// refusedError is a response of a source that stands for all.
type refusedError struct {
	source, contentType, retryAfter string
	code                            int
	body                            []byte
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s answered %d: %.200s", e.source, e.code, e.body)
}

// get is Get of a source, with a bound on the wait for the beginning. The response is a good one.
func (s *Source) get(ctx context.Context, watch bool, accept []string, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(startTimeout, cancel)
	resp, err := s.Get(ctx, watch, accept, query)
	if !late.Stop() && err == nil {
		_ = resp.Body.Close()
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return nil, err
		}
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the server is currently unable to handle the request: backend %s, which stores some of the objects, did not answer: %v", s.Name, err))
	}
	resp.Body = &cancelled{resp.Body, cancel}
	if resp.StatusCode == http.StatusOK && isJSON(resp.Header.Get("Content-Type")) && resp.Header.Get("Content-Encoding") == "" {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // an error of the body was met while it was read
	if resp.StatusCode < http.StatusBadRequest {
		return nil, apierrors.NewInternalError(fmt.Errorf("backend %s answered %d with %s, want JSON", s.Name, resp.StatusCode, resp.Header.Get("Content-Type")))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("backend %s, which stores some of the objects, answered %d without a body: %v", s.Name, resp.StatusCode, err))
	}
	return nil, &refusedError{s.Name, resp.Header.Get("Content-Type"), resp.Header.Get("Retry-After"), resp.StatusCode, body}
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), respond.MediaJSON)
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
