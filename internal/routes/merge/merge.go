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
	// maxLists limits the concurrent merged lists of one collection, so that a hanging source does not delay other collections.
	// One user may use half of them. maxBytes limits the size of one list.
	maxLists = 16
	maxBytes = 64 << 20
	// maxEvent limits the size of an event.
	maxEvent = 8 << 20
	// startTimeout limits the wait for the start of a response, and listTimeout an entire list.
	startTimeout = 10 * time.Second
	listTimeout  = 60 * time.Second
)

// Source is a backend that stores some of the objects of a collection.
type Source struct {
	// Name identifies the source in messages and positions.
	Name string
	// Owns reports whether the source owns the objects of a namespace. Its objects of other namespaces are omitted.
	Owns func(namespace string) bool
	// Get sends a list or a watch of the entire collection to the source, as the client. A response that is not JSON is an
	// error.
	Get func(ctx context.Context, watch bool, accept []string, query url.Values) (*http.Response, error)
}

// Collection contains the objects of one resource, in all namespaces or in one, that are stored in one or several sources.
type Collection struct {
	Sources []Source
	// ID and Epoch identify the distribution of the objects over the sources. The epoch increases.
	ID    string
	Epoch int64
	// Lifetime is the duration of a watch without a timeout.
	Lifetime time.Duration
}

// ErrMoved is the cancellation cause of the context of a watch when other sources become owners of the objects. Its client
// lists again.
var ErrMoved = errors.New("the objects are stored elsewhere now")

// Merger serves collections. It is safe for concurrent use.
type Merger struct {
	// initialPart is the page size of lists for watches with initial events.
	initialPart int64
	budget      budget

	mu    sync.Mutex // guards lists
	lists map[string]*slots
}

// Charged returns the bytes of the lists and events that are being merged.
func (m *Merger) Charged() int64 {
	m.budget.mu.Lock()
	defer m.budget.mu.Unlock()
	return m.budget.bytes
}

// slots limits the lists of one ID. It exists while a request holds or awaits a slot.
type slots struct {
	taken chan struct{}
	users int
}

// enter waits until a user may merge another list of a collection. leave releases the slots.
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

// enterOne waits until one of most slots is free.
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

// New returns a Merger. bound limits the bytes of all its lists and events; 0 means MaxBytes. Lists and watches beyond it get
// 429.
func New(bound int64) *Merger {
	if bound <= 0 {
		bound = MaxBytes
	}
	return &Merger{lists: map[string]*slots{}, initialPart: 500, budget: budget{max: bound, users: map[string]int64{}}}
}

// Serve serves a list or a watch. The request is already authorized. Sources may authorize it again.
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
		_, _ = w.Write(refused.body) // an error means that the client has disconnected
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = apierrors.NewInternalError(err)
	}
	respond.Error(w, r.Request, err)
}

// query contains the parameters of a request.
type query struct {
	form
	// rest contains the parameters forwarded to each source: selectors and unknown ones.
	rest     url.Values
	limit    int64
	token    string
	version  string
	match    string
	versions []string // by source; nil if the request has no position
	// initial means that a watch begins with the existing objects, initialEnd that a bookmark marks their end, and newest that
	// the watch begins now without them.
	initial, initialEnd, newest bool
	bookmarks                   bool
	lifetime                    time.Duration
	user                        string
}

// own are the parameters for the range and the format of a list or a watch.
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

// with returns the parameters for a source: the forwarded ones, and pairs with a value.
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

// refusedError is an error response of a source, which becomes the response of the entire request.
type refusedError struct {
	source, contentType, retryAfter string
	code                            int
	body                            []byte
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s answered %d: %.200s", e.source, e.code, e.body)
}

// get calls Get with a limit on the wait for the response. It returns only successful JSON responses.
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
	defer func() { _ = resp.Body.Close() }() // read errors have already been handled
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

// cancelled is a body that releases its context on Close.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
