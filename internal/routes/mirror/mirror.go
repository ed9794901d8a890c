package mirror

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// Config configures a Mirror. The zero value of each limit means its default.
type Config struct {
	// MaxWaiting limits the copies that wait to be sent. Default 128.
	MaxWaiting int
	// MaxInFlight limits the copies that are sent and compared concurrently. Default 4.
	MaxInFlight int
	// MaxBody limits each compared body, in bytes, both compressed and uncompressed. Default 1 MiB.
	MaxBody int64
	// MaxBytes limits all buffered bodies, in bytes. Default 32 MiB.
	MaxBytes int64
	// Timeout limits each copy. Default 10 s.
	Timeout time.Duration
	// LogInterval is the minimum interval between log messages about differing responses. Default 10 s.
	LogInterval time.Duration
	// Metrics counts copies. May be nil.
	Metrics *metrics.Mirror
	// Logger logs differences. May be nil.
	Logger *zap.Logger
}

// Mirror sends copies of reads and compares the responses. It is safe for concurrent use.
type Mirror struct {
	config Config
	log    *zap.Logger
	queue  chan *Read
	bytes  atomic.Int64 // size of all buffered bodies

	mu      sync.Mutex // guards stopped, logged and omitted
	stopped bool       // set when the queue accepts no more reads
	logged  time.Time  // time of the last log message
	omitted int        // number of differences since then that were not logged
}

// Read is a read to be mirrored. The client's response is recorded in Response.
type Read struct {
	// APIRoute and Backend identify the destination of the copy, for metrics and the log. Path is the request path, for the
	// log.
	APIRoute, Backend, Path string
	// Response is the client's response.
	Response Response
	// Rules defines the allowed differences.
	Rules Rules
	// Send sends the copy and writes the response to w. It returns when the response is complete, or returns an error if the
	// response is missing or incomplete. It must end soon after ctx is cancelled, and may panic with http.ErrAbortHandler. It
	// returns ErrObsolete if the copy is not worth sending.
	Send func(ctx context.Context, w http.ResponseWriter) error
}

// New returns a Mirror. It starts no goroutines.
func New(c Config) *Mirror {
	orDefault(&c.MaxWaiting, 128)
	orDefault(&c.MaxInFlight, 4)
	orDefault(&c.MaxBody, 1<<20)
	orDefault(&c.MaxBytes, 32<<20)
	orDefault(&c.Timeout, 10*time.Second)
	orDefault(&c.LogInterval, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return &Mirror{config: c, log: c.Logger, queue: make(chan *Read, c.MaxWaiting)}
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Begin returns a Read for recording a response, or nil if the queue is full. It does not block. The caller must call End or
// Cancel.
func (m *Mirror) Begin(apiRoute, backend, path string) *Read {
	if len(m.queue) == cap(m.queue) {
		m.config.Metrics.Read(apiRoute, backend, metrics.MirrorDropped)
		return nil
	}
	return &Read{APIRoute: apiRoute, Backend: backend, Path: path, Response: Response{mirror: m}}
}

// Cancel releases a read that is not to be mirrored, because its response was aborted or came from a different source.
func (m *Mirror) Cancel(r *Read) { r.Response.free() }

// End must be called when the response is complete. The copy is sent later, or dropped if the queue is full, the body is too
// large, or Run has ended. End does not block.
func (m *Mirror) End(r *Read) {
	if r.Response.tooLarge || !m.enqueue(r) {
		m.drop(r)
	}
}

func (m *Mirror) enqueue(r *Read) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	select {
	case m.queue <- r:
		return true
	default:
		return false
	}
}

func (m *Mirror) drop(r *Read) {
	r.Response.free()
	m.config.Metrics.Read(r.APIRoute, r.Backend, metrics.MirrorDropped)
}

// Run sends copies until ctx ends. It then drops waiting copies and cancels copies in progress.
func (m *Mirror) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range m.config.MaxInFlight {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case r := <-m.queue:
					m.handle(ctx, r)
				}
			}
		})
	}
	workers.Wait()
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	for {
		select {
		case r := <-m.queue:
			m.drop(r)
		default:
			return nil
		}
	}
}

// handle sends a copy and compares its response.
func (m *Mirror) handle(ctx context.Context, r *Read) {
	defer r.Response.free()
	if ctx.Err() != nil {
		m.config.Metrics.Read(r.APIRoute, r.Backend, metrics.MirrorDropped)
		return
	}
	other := Response{mirror: m}
	defer other.free()
	// Not a context deadline, because the proxy applies deadlines only until a response begins.
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(m.config.Timeout, func() { cancel(errTimeout) }).Stop()
	err := m.send(bounded, r, &other)
	if err != nil && errors.Is(context.Cause(bounded), errTimeout) {
		err = errTimeout
	}
	switch {
	case ctx.Err() != nil, other.tooLarge, errors.Is(err, ErrObsolete): // the server stops, or the responses cannot be compared
		m.config.Metrics.Read(r.APIRoute, r.Backend, metrics.MirrorDropped)
	case err != nil:
		m.report(r, metrics.MirrorFailed, zap.NamedError("failure", err))
	case other.code != r.Response.code:
		m.report(r, metrics.MirrorStatus, zap.Int("code", r.Response.code), zap.Int("mirrored", other.code))
	default:
		m.compare(r, &other)
	}
}

func (m *Mirror) compare(r *Read, other *Response) {
	path, err := r.Rules.compare(&r.Response, other)
	switch {
	case errors.Is(err, errTooLarge):
		m.config.Metrics.Read(r.APIRoute, r.Backend, metrics.MirrorDropped)
	case err != nil:
		m.report(r, metrics.MirrorFailed, zap.NamedError("failure", err))
	case path != "":
		m.report(r, metrics.MirrorBody, zap.Int("code", other.code), zap.String("differs", path))
	default:
		m.config.Metrics.Read(r.APIRoute, r.Backend, metrics.MirrorSame)
	}
}

// ErrObsolete is returned by Read.Send if the copy is not sent because the route has changed.
var ErrObsolete = errors.New("the APIRoute has changed")

var (
	errBrokenOff = errors.New("the response broke off")
	errTimeout   = errors.New("there was no complete response in time")
)

func (m *Mirror) send(ctx context.Context, r *Read, other *Response) (err error) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			err = errBrokenOff
		default:
			m.log.Error("panic while mirroring a read", zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
			err = errors.New("panic")
		}
	}()
	if err := r.Send(ctx, &writer{header: http.Header{}, to: other}); err != nil {
		return err
	}
	if other.code == 0 {
		return errors.New("there was no response")
	}
	return nil
}

// report counts a copy with a different response, and logs it at a limited rate.
func (m *Mirror) report(r *Read, result string, fields ...zap.Field) {
	m.config.Metrics.Read(r.APIRoute, r.Backend, result)
	omitted, ok := m.mayLog(time.Now())
	if !ok {
		return
	}
	fields = append(fields, zap.String("apiroute", r.APIRoute), zap.String("backend", r.Backend), zap.String("path", bounded(r.Path)), zap.String("result", result))
	if omitted > 0 {
		fields = append(fields, zap.Int("omitted", omitted))
	}
	m.log.Warn("response to a mirrored read differs", fields...)
}

func (m *Mirror) mayLog(now time.Time) (omitted int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.logged.IsZero() && now.Sub(m.logged) < m.config.LogInterval {
		m.omitted++
		return 0, false
	}
	omitted, m.omitted, m.logged = m.omitted, 0, now
	return omitted, true
}

// charge reports whether there is space for n more bytes, and reserves it.
func (m *Mirror) charge(n int64) bool {
	if m.bytes.Add(n) > m.config.MaxBytes {
		m.bytes.Add(-n)
		return false
	}
	return true
}

func (m *Mirror) discharge(n int64) { m.bytes.Add(-n) }

// maxText limits each logged text that comes from a client or a backend.
const maxText = 512

func bounded(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "..."
	}
	return text
}
