package sharedwatch

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// Config is what Watches need. The zero value of each limit means its default.
type Config struct {
	// MaxStreams bounds the watches of extension servers. Default 256.
	MaxStreams int
	// MaxFrames and MaxFrameBytes bound the events that each of them keeps. Default 4096, and 8 MiB.
	MaxFrames     int
	MaxFrameBytes int64
	// MaxBytes bounds the objects of all of them, and the bytes that are being read. Their events take half as much beside. Default MaxBytes.
	MaxBytes int64
	// MaxLists bounds the lists of an APIRoute's extension server that are in progress. Default 8. Of the streams, the bytes and the lists,
	// the streams that one user's clients began have at most half.
	MaxLists int
	// Metrics counts what is shared. May be nil.
	Metrics *metrics.SharedWatches
	// Logger is told why a watch is not shared. May be nil.
	Logger *zap.Logger
}

// notSharedFor is for how long watches of a collection are not shared after one could not be.
const notSharedFor = 30 * time.Second

// Request is a watch of a client.
type Request struct {
	// Key is equal for requests that may share a watch.
	Key string
	// User is the name of the client's user. A stream counts for the user whose client began it, or needed its objects.
	User string
	// Of is the name of the APIRoute, for metrics and the log.
	Of string
	// Backend is the extension server. Path and Query are the collection, and what selects of it; the query has none of the parameters that
	// say where and how a watch begins or ends.
	Backend     http.RoundTripper
	Path, Query string
	// Current reports whether watches of this key are still shared. It must not block.
	Current func() bool

	// Version is where the client begins. Empty or 0: with the objects that there are.
	Version string
	// InitialEvents: the client asks for the objects, whatever Version says, and for a bookmark at their end if it takes bookmarks.
	InitialEvents bool
	Bookmarks     bool
	// Lifetime is when the watch of the client ends.
	Lifetime time.Duration
	// Begin is called before the response begins.
	Begin func()
}

// Watches is safe for concurrent use.
type Watches struct {
	config Config
	log    *zap.Logger

	running sync.WaitGroup

	mu      sync.Mutex      // guards what follows
	ctx     context.Context // of Run; nil before it, and after it
	streams map[string]*stream
	began   int64 // streams so far
	// refused are the keys whose watches cannot be shared, until when.
	refused map[refusal]time.Time
	users   map[string]usage
	bytes   int64 // of all users
	clients int
	lists   map[string]*listSlots // by APIRoute
	// listEnded is closed, and replaced, when a list has ended.
	listEnded chan struct{}
}

// refusal is a key that cannot be shared, for one user or, with an empty name, for all.
type refusal struct{ key, user string }

// New returns Watches. Nothing is shared before Run.
func New(c Config) *Watches {
	orDefault(&c.MaxStreams, 256)
	orDefault(&c.MaxFrames, 4096)
	orDefault(&c.MaxFrameBytes, 8<<20)
	orDefault(&c.MaxBytes, MaxBytes)
	orDefault(&c.MaxLists, maxLists)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return &Watches{
		config: c, log: c.Logger, streams: map[string]*stream{}, refused: map[refusal]time.Time{}, users: map[string]usage{},
		lists: map[string]*listSlots{}, listEnded: make(chan struct{}),
	}
}

func orDefault[T int | int64](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Run shares watches until ctx ends, and waits until none of the extension servers is watched any more.
func (s *Watches) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// do runs f, unless Run has ended or not begun.
func (s *Watches) do(f func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx := s.ctx
	if ctx == nil {
		return false
	}
	s.running.Go(func() { f(ctx) })
	return true
}

// Serve begins the response to a watch from a shared one; Run serves the rest, and Leave follows. Nil: the watch cannot be shared, and nothing
// was written.
func (s *Watches) Serve(ctx context.Context, w http.ResponseWriter, q *Request) (begun *Watch) {
	t := s.join(q)
	if t == nil {
		return nil
	}
	defer func() {
		if begun == nil {
			s.leave(t)
		}
	}()
	select {
	case <-t.ready:
	case <-ctx.Done():
		return nil
	}
	if !t.hasBegun() || q.isInitial() && !t.objectsKnown(ctx, q.User) || !q.isInitial() && !t.hasReached(ctx, q.User, q.Version) {
		return nil
	}
	c := &Watch{stream: t, ctx: ctx, w: w, flush: http.NewResponseController(w), of: q.Of, bookmarks: q.Bookmarks, lifetime: q.Lifetime}
	if c.begin(q) != nil {
		return nil
	}
	if q.Begin != nil {
		q.Begin()
	}
	w.Header()["Content-Type"], w.Header()["Cache-Control"] = []string{"application/json"}, []string{"no-cache, private"}
	w.WriteHeader(http.StatusOK)
	c.send()
	return c
}

// join returns the stream of a key, and begins it if there is none. Nil: there can be none.
func (s *Watches) join(q *Request) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.streams[q.Key]
	if t == nil {
		if t = s.newStream(q); t == nil {
			return nil
		}
	}
	t.clients++
	s.clients++
	s.config.Metrics.Clients(s.clients)
	return t
}

// newStream begins a stream. Nil: it must not. The caller holds mu.
func (s *Watches) newStream(q *Request) *stream {
	now := time.Now()
	if s.ctx == nil || len(s.streams) >= s.config.MaxStreams || now.Before(s.refused[refusal{q.Key, ""}]) || now.Before(s.refused[refusal{q.Key, q.User}]) {
		return nil
	}
	if s.users[q.User].streams >= share(s.config.MaxStreams) {
		return nil
	}
	s.account(q.User, 1, 0)
	of := *q
	of.Begin = nil // it is about one client
	s.began++
	t := &stream{watches: s, of: of, ready: make(chan struct{}), changed: make(chan struct{}), owner: q.User, number: s.began}
	s.streams[q.Key] = t
	t.history = history{maxFrames: s.config.MaxFrames, maxBytes: s.config.MaxFrameBytes}
	ctx, cancel := context.WithCancelCause(s.ctx)
	t.cancel = cancel
	s.running.Go(func() { t.run(ctx) })
	s.config.Metrics.Streams(len(s.streams))
	return t
}

func (s *Watches) leave(t *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.clients--
	s.clients--
	if t.clients == 0 {
		t.abandoned = time.Now()
	}
	s.config.Metrics.Clients(s.clients)
}

// unwanted reports whether a stream has had no client for a while.
func (s *Watches) unwanted(t *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.clients == 0 && time.Since(t.abandoned) >= lingers
}

// maxRefused bounds the keys that are remembered because their watches cannot be shared.
const maxRefused = 4096

// remove forgets a stream that has ended.
func (s *Watches) remove(t *stream, err error, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, t.of.Key)
	s.account(t.owner, -1, -t.held)
	t.held, t.evicted = 0, true
	s.config.Metrics.Streams(len(s.streams))
	if s.ctx == nil || errors.Is(err, context.Canceled) {
		return
	}
	var gone *expiredError
	if !begun && !errors.As(err, &gone) || errors.Is(err, errTooMuch) || errors.Is(err, errNotAnEvent) {
		now := time.Now()
		for key, until := range s.refused {
			if len(s.refused) >= maxRefused || now.After(until) {
				delete(s.refused, key)
			}
		}
		of := refusal{key: t.of.Key}
		if errors.Is(err, errShare) || errors.Is(err, errListsBusy) {
			of.user = t.of.User
		}
		s.refused[of] = now.Add(notSharedFor)
	}
	s.log.Info("a shared watch ended", zap.String("apiroute", t.of.Of), zap.String("path", t.of.Path), zap.Bool("begun", begun), zap.Error(err))
}
