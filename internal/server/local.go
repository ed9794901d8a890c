package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/request"
)

// ForLocal gives a request's context what the library that serves the local groups looks for there: an audit context
// (without one every patch panics), a warning recorder and latency trackers. Proxied requests do without. Its body must
// come in time, and within bodies; nil is no bound.
func ForLocal(bodies *BodyMemory, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, r := requestContextOf(r)
		s.local = newLocalRequest(w, r)
		if request.LongRunning(s.Info) { // its body goes on to a kubelet or pod as it comes, and is nowhere as a whole
			next.ServeHTTP(w, r)
			return
		}
		h := bodies.charge(w, r)
		if h != nil {
			defer h.release()
		}
		limitLocalBody(w, r, h)
		next.ServeHTTP(w, r)
	})
}

// localRequest is what the library needs, in one value: a request that the library serves costs one allocation in place
// of two dozen.
type localRequest struct {
	latencies latencyTrackers
	warnings  warnings
}

func newLocalRequest(w http.ResponseWriter, r *http.Request) *localRequest {
	l := &localRequest{warnings: warnings{writer: w, request: r}}
	l.latencies.begin()
	return l
}

// latencyTrackers are the library's trackers, of which its metrics read those of webhooks.
type latencyTrackers struct {
	apirequest.LatencyTrackers
	of [11]latencyTracker
}

func (l *latencyTrackers) begin() {
	t := &l.LatencyTrackers
	for i, to := range [...]*apirequest.DurationTracker{
		&t.MutatingWebhookTracker, &t.ValidatingWebhookTracker, &t.AuthenticationTracker, &t.AuthorizationTracker,
		&t.APFQueueWaitTracker, &t.StorageTracker, &t.TransformTracker, &t.SerializationTracker, &t.ResponseWriteTracker,
		&t.DecodeTracker, &t.ImpersonationTracker,
	} {
		*to = &l.of[i]
	}
	for _, parallel := range [...]int{1, 3, 4} { // as the library has it
		l.of[parallel].longest = true
	}
}

// latencyTracker is a sum of times, or the longest of them where several pass at once.
type latencyTracker struct {
	total   atomic.Int64
	longest bool
}

// Track implements apirequest.DurationTracker.
func (l *latencyTracker) Track(f func()) {
	began := time.Now()
	defer func() { l.TrackDuration(time.Since(began)) }()
	f()
}

// TrackDuration implements apirequest.DurationTracker.
func (l *latencyTracker) TrackDuration(d time.Duration) {
	if !l.longest {
		l.total.Add(int64(d))
		return
	}
	for {
		if was := l.total.Load(); was >= int64(d) || l.total.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// GetLatency implements apirequest.DurationTracker.
func (l *latencyTracker) GetLatency() time.Duration { return time.Duration(l.total.Load()) }

// warnings are the library's recorder, made with the first warning.
type warnings struct {
	writer  http.ResponseWriter
	request *http.Request

	once     sync.Once
	recorder context.Context // has the library's
}

// AddWarning implements warning.Recorder.
func (n *warnings) AddWarning(agent, text string) {
	n.once.Do(func() {
		keep := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { n.recorder = r.Context() })
		genericfilters.WithWarningRecorder(keep).ServeHTTP(n.writer, n.request)
	})
	warning.AddWarning(n.recorder, agent, text)
}

// authWarnings are what authentication warns the client of, before it is known whether the request is for the local
// groups. They are sent with the response, whoever gives it.
type authWarnings struct {
	mu    sync.Mutex // guards texts: a credential may be looked at by another goroutine
	texts []string
}

// AddWarning implements warning.Recorder. The agent is always this server, so that it has no name here.
func (e *authWarnings) AddWarning(_, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text != "" && !slices.Contains(e.texts, text) {
		e.texts = append(e.texts, text)
	}
}

// addTo adds them to the header of a response.
func (e *authWarnings) addTo(h http.Header) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.texts {
		if line, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // fails for what no header can hold
			h.Add("Warning", line)
		}
	}
}

// libraryAudit is the library's audit context, and what its event refers to.
type libraryAudit struct {
	audit.AuditContext
	room eventParts
}

// auditContext is the library's audit context, made when somebody first asks for it: for what the local groups add to
// the event of a request, and for what authentication has to say of a credential, when the policy has not been asked
// yet. It is nil for a request that is neither audited nor served locally.
func (c *requestContext) auditContext() *audit.AuditContext {
	t := &c.audit
	if e := t.library.Load(); e != nil {
		return &e.AuditContext
	}
	if t.auditor == nil && c.local == nil && c.User != nil {
		return nil
	}
	e := &libraryAudit{}
	e.SetEventStage(auditinternal.StageResponseStarted) // as the library begins
	audit.WithAuditID(&auditContextHolder{events: &e.AuditContext}, types.UID(c.AuditID))
	if t.auditor != nil {
		if err := e.Init(t.config, t); err != nil {
			return nil // a context can be initialized once, and this one is new
		}
	}
	if !t.library.CompareAndSwap(nil, e) {
		e = t.library.Load() // others were sooner
	}
	return &e.AuditContext
}

// auditContextHolder is a context by which the library finds an audit context.
type auditContextHolder struct {
	context.Context
	events *audit.AuditContext
}

// Value implements context.Context.
func (o *auditContextHolder) Value(any) any { return o.events }

// localBody is the body of a request for the local groups. Its errors say that the client is at fault: the library
// would answer others with 500 and log each. Errors of a proxied request's body are the proxy's to report.
type localBody struct {
	io.ReadCloser
	held *bodyCharge // nil: it is not counted
}

// limitLocalBody also ends reading the body at the request's deadline. A context ends no read that waits for bytes, and
// one client could keep every seat of its priority level with bodies that do not come.
func limitLocalBody(w http.ResponseWriter, r *http.Request, h *bodyCharge) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	body := r.Body
	r.Body = localBody{body, h}
	if b, ok := body.(interface{ Buffered() (int, bool) }); ok {
		if _, ended := b.Buffered(); ended {
			return
		}
	}
	if at, ok := r.Context().Deadline(); ok {
		_ = http.NewResponseController(w).SetReadDeadline(at) // a request from within has its body at hand
	}
}

// Read implements io.Reader.
func (b localBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.held != nil && !b.held.add(n) {
		return 0, errBodyMemory()
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, apierrors.NewTimeoutError("the body of the request did not come before the deadline; send it faster, or ask for a longer timeout", 0)
	}
	return n, apierrors.NewBadRequest("the body of the request broke off, or is not one")
}
