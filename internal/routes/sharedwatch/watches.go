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

// Config is the configuration of Watches. The zero value of each limit selects its default.
type Config struct {
	// MaxStreams is the maximum number of watches of extension servers. Default 256.
	MaxStreams int
	// MaxFrames and MaxFrameBytes limit the events that each stream keeps. Default 4096, and 8 MiB.
	MaxFrames     int
	MaxFrameBytes int64
	// MaxBytes limits the objects of all streams, and the bytes that are being read. Events take up to half of MaxBytes in
	// addition. Default MaxBytes.
	MaxBytes int64
	// MaxLists limits the concurrent lists of an APIRoute's extension server. Default 8. The streams that one user's
	// clients began may use at most half of the streams, the bytes and the lists.
	MaxLists int
	// Metrics counts shared watches. May be nil.
	Metrics *metrics.SharedWatches
	// Logger logs why a watch is not shared. May be nil.
	Logger *zap.Logger
}

// notSharedFor is how long watches of a collection are not shared after sharing one has failed.
const notSharedFor = 30 * time.Second

// Request is a watch of a client.
type Request struct {
	// Key is equal for requests that may share a watch.
	Key string
	// User is the name of the client's user. A stream is charged to the user of the client that began it or needed its
	// objects.
	User string
	// Of is the name of the APIRoute, for metrics and the log.
	Of string
	// Backend is the extension server. Path is the path of the collection, and Query its selectors. The query contains none
	// of the parameters that determine where and how a watch begins or ends.
	Backend     http.RoundTripper
	Path, Query string
	// Current reports whether watches of this key are still shared. It must not block.
	Current func() bool

	// Version is the resource version at which the client begins. Empty or 0 means that it begins with the current objects.
	Version string
	// InitialEvents is set if the client requests the objects, whatever Version is, and a bookmark that ends them if
	// Bookmarks is set.
	InitialEvents bool
	Bookmarks     bool
	// Lifetime is the duration of the client's watch.
	Lifetime time.Duration
	// Begin is called before the response begins.
	Begin func()
}

// Watches contains the shared watches. It is safe for concurrent use.
type Watches struct {
	config Config
	log    *zap.Logger

	running sync.WaitGroup

	mu      sync.Mutex      // guards the fields below
	ctx     context.Context // of Run; nil before and after it
	streams map[string]*stream
	began   int64 // number of streams so far
	// refused contains the keys with watches that cannot be shared, and the time until which that holds.
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

// New returns Watches. Watches are not shared before Run.
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

// Run shares watches until ctx ends, and returns when all streams have ended.
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

// Serve begins the response to a watch from a shared one. The caller must then call Run, which serves the rest, and Leave.
// Serve returns nil if the watch cannot be shared; nothing was written then.
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

// join returns the stream of a key, and begins it if necessary. It returns nil if the watch cannot be shared.
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

// newStream begins a stream. It returns nil if that is not allowed. The caller must hold mu.
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
	of.Begin = nil // it belongs to a single client
	s.began++
	t := &stream{watches: s, collection: of, ready: make(chan struct{}), changed: make(chan struct{}), owner: q.User, number: s.began}
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

// maxRefused is the maximum number of remembered keys with watches that cannot be shared.
const maxRefused = 4096

// remove removes a stream that has ended.
func (s *Watches) remove(t *stream, err error, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, t.collection.Key)
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
		of := refusal{key: t.collection.Key}
		if errors.Is(err, errShare) || errors.Is(err, errListsBusy) {
			of.user = t.collection.User
		}
		s.refused[of] = now.Add(notSharedFor)
	}
	s.log.Info("shared watch ended", zap.String("apiroute", t.collection.Of), zap.String("path", t.collection.Path), zap.Bool("begun", begun), zap.Error(err))
}
