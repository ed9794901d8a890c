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

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/request"
)

// ForLocal adds the values to a request's context that k8s.io/apiserver requires to serve the local groups: an audit
// context (without one every patch panics), a warning recorder and latency trackers. Proxied requests do not need
// them. It also limits the time for the request's body, and charges its memory to bodies; nil means no memory limit.
func ForLocal(bodies *BodyMemory, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, r := requestContextOf(r)
		s.local = newLocalRequest(w, r)
		if request.LongRunning(s.Info) { // the body is streamed to a kubelet or pod, and never held as a whole
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

// localRequest combines the values that k8s.io/apiserver requires: a request for the local groups costs one
// allocation instead of two dozen.
type localRequest struct {
	latencies latencyTrackers
	warnings  warnings
}

func newLocalRequest(w http.ResponseWriter, r *http.Request) *localRequest {
	l := &localRequest{warnings: warnings{writer: w, request: r}}
	l.latencies.begin()
	return l
}

// latencyTrackers are k8s.io/apiserver's trackers. Its metrics read only the trackers of webhooks.
type latencyTrackers struct {
	apirequest.LatencyTrackers
	trackers [11]latencyTracker
}

func (l *latencyTrackers) begin() {
	t := &l.LatencyTrackers
	for i, to := range [...]*apirequest.DurationTracker{
		&t.MutatingWebhookTracker, &t.ValidatingWebhookTracker, &t.AuthenticationTracker, &t.AuthorizationTracker,
		&t.APFQueueWaitTracker, &t.StorageTracker, &t.TransformTracker, &t.SerializationTracker, &t.ResponseWriteTracker,
		&t.DecodeTracker, &t.ImpersonationTracker,
	} {
		*to = &l.trackers[i]
	}
	for _, parallel := range [...]int{1, 3, 4} { // as in k8s.io/apiserver
		l.trackers[parallel].longest = true
	}
}

// latencyTracker holds the sum of durations, or the longest one if several run in parallel.
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

// warnings is k8s.io/apiserver's recorder, created with the first warning.
type warnings struct {
	writer  http.ResponseWriter
	request *http.Request

	once     sync.Once
	recorder context.Context // contains k8s.io/apiserver's recorder
}

// AddWarning implements warning.Recorder.
func (n *warnings) AddWarning(agent, text string) {
	n.once.Do(func() {
		keep := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { n.recorder = r.Context() })
		genericfilters.WithWarningRecorder(keep).ServeHTTP(n.writer, n.request)
	})
	warning.AddWarning(n.recorder, agent, text)
}

// authWarnings are the warnings of authentication, which runs before it is known whether the request is for the local
// groups. They are sent with the response, regardless of its handler.
type authWarnings struct {
	mu    sync.Mutex // guards texts: another goroutine may verify a credential
	texts []string
}

// AddWarning implements warning.Recorder. It drops the agent, which is always this server.
func (e *authWarnings) AddWarning(_, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text != "" && !slices.Contains(e.texts, text) {
		e.texts = append(e.texts, text)
	}
}

// addTo adds the warnings to the header of a response.
func (e *authWarnings) addTo(h http.Header) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.texts {
		if line, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // fails for text that a header cannot contain
			h.Add("Warning", line)
		}
	}
}

// libraryAudit is k8s.io/apiserver's audit context, with room for the objects that its event refers to.
type libraryAudit struct {
	audit.AuditContext
	room eventParts
}

// auditContext returns k8s.io/apiserver's audit context, and creates it at the first call. The local groups use it to
// add to the event of a request. Authentication uses it for annotations about a credential, before the policy has
// been evaluated. It is nil for a request that is neither audited nor served locally.
func (c *requestContext) auditContext() *audit.AuditContext {
	t := &c.audit
	if e := t.library.Load(); e != nil {
		return &e.AuditContext
	}
	if t.auditor == nil && c.local == nil && c.User != nil {
		return nil
	}
	e := &libraryAudit{}
	e.SetEventStage(auditinternal.StageResponseStarted) // the initial stage in k8s.io/apiserver
	audit.WithAuditID(&auditContextHolder{events: &e.AuditContext}, types.UID(c.AuditID))
	if t.auditor != nil {
		if err := e.Init(t.config, t); err != nil {
			return nil // unreachable: Init fails only for an initialized context, and this one is new
		}
	}
	if !t.library.CompareAndSwap(nil, e) {
		e = t.library.Load() // another goroutine was faster
	}
	return &e.AuditContext
}

// auditContextHolder is a context in which k8s.io/apiserver finds an audit context.
type auditContextHolder struct {
	context.Context
	events *audit.AuditContext
}

// Value implements context.Context.
func (o *auditContextHolder) Value(any) any { return o.events }

// localBody is the body of a request for the local groups. Its errors are client errors: k8s.io/apiserver would
// respond to other errors with a 500 and log each. The proxy reports the body errors of proxied requests.
type localBody struct {
	io.ReadCloser
	held *bodyCharge // nil if the body is not counted
}

// limitLocalBody also sets the request's deadline for reading the body. A context does not interrupt a read that
// waits for bytes, and one client could hold every seat of its priority level with bodies that never arrive.
func limitLocalBody(w http.ResponseWriter, r *http.Request, h *bodyCharge) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	body := r.Body
	r.Body = localBody{body, h}
	if b, ok := body.(engine.RequestBody); ok {
		if _, ended := b.Buffered(); ended {
			return
		}
	}
	if at, ok := r.Context().Deadline(); ok {
		_ = http.NewResponseController(w).SetReadDeadline(at) // internal requests already have their body
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
