package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/transport"
)

// record is what the filters learn of one request, for the log, the metrics and the audit event. Only the goroutine
// that serves the request touches it.
type record struct {
	started      time.Time
	ended        time.Time // zero: it has not, or nobody looked at the clock then
	user         user.Info // who asked, before impersonation
	credential   string    // the kind of it that was believed; empty: none was shown
	impersonated user.Info // whom they act as, if anyone
	constraint   string    // the verb that let them, when it was one of KEP-5284
	decision     string    // allow or forbid
	reason       string    // the authorizer's
	servedBy     string    // "local", "discovery", or the name of an APIService

	endpoint string // of the backend, tried last
	attempts int    // to reach one
	failure  string // the sentence that the client was told when a backend failed it

	long     bool    // it was found to be long-running, by its APIService or by being upgraded
	place    place   // its place among the requests served at once; nil: it has none
	keeper   *keeper // takes that place away after a while once it was handed to a backend; nil: at once
	kept     kept    // by the keeper
	carried  bool    // it is for a backend
	backend  *transport.Slot
	draining context.Context // ends when long-running requests must
}

// place is a place among the requests that are served at once.
type place interface {
	// Leave gives it back. Where a keeper may call it too, it is safe to repeat.
	Leave()
}

// end is when the request was over: what was noted, or now.
func (rec *record) end() time.Time {
	if rec.ended.IsZero() {
		rec.ended = time.Now()
	}
	return rec.ended
}

// Admitted implements proxy.Witness.
func (rec *record) Admitted(p *transport.Slot) { rec.backend = p }

// Attempted implements proxy.Witness.
func (rec *record) Attempted(endpoint string, number int) {
	rec.endpoint, rec.attempts = endpoint, number
}

// Failed implements proxy.Witness.
func (rec *record) Failed(text string) { rec.failure = text }

// Lasts implements proxy.Witness.
func (rec *record) Lasts() { rec.long = true }

// giveUpSeat lets another request in before this one is over.
func (rec *record) giveUpSeat() {
	if rec.place != nil {
		rec.place.Leave()
		rec.place = nil
	}
}

// handOver lets go of the seat while a backend serves the request: at once, unless those who give seats said otherwise.
// takeBack follows when the request is over.
func (rec *record) handOver(long bool) {
	if rec.place == nil || rec.keeper == nil || long {
		rec.giveUpSeat()
		return
	}
	rec.keeper.keep(&rec.kept, rec.place)
}

func (rec *record) takeBack() {
	if rec.keeper != nil {
		rec.keeper.forget(&rec.kept)
	}
}

type recordKey struct{}

func withRecord(ctx context.Context, r *record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// recordFrom never returns nil: outside the chain there is nobody to read what is noted.
func recordFrom(ctx context.Context) *record {
	if s, ok := ctx.(*scene); ok { // nearly always
		return &s.record
	}
	if r, ok := ctx.Value(recordKey{}).(*record); ok {
		return r
	}
	return &record{}
}

// response remembers what was answered. It flushes and tells of a client that is gone, as the library that serves the
// local groups expects of any writer.
type response struct {
	http.ResponseWriter
	code     int
	bytes    int64
	hijacked bool
	begun    func() // called once, when the code is known; nil: nobody waits for it

	scene *scene
	slows *slowClients // nil: nobody looks after it
	slow  slowAnswer   // theirs
}

// answer notes the code of an answer that begins.
func (w *response) answer(code int) {
	if w.code != 0 {
		return
	}
	w.code = code
	if w.begun != nil {
		w.begun()
	}
}

// hijackable is a response over HTTP/1.1, whose connection can be taken over for an upgrade. HTTP/2 has no such thing,
// and a writer that claims it would be believed.
type hijackable struct{ *response }

// of makes w the response to w's client, and is how the chain sees it.
func (w *response) of(to http.ResponseWriter, r *http.Request) http.ResponseWriter {
	w.ResponseWriter = to
	if _, ok := to.(http.Hijacker); ok && r.ProtoMajor == 1 {
		return hijackable{w}
	}
	return w
}

// codeOf is what was answered by the writer of the chain, 0 for nothing and for any other writer.
func codeOf(w http.ResponseWriter) int {
	switch w := w.(type) {
	case *response:
		return w.code
	case hijackable:
		return w.code
	}
	return 0
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(code int) {
	if code >= 200 {
		w.answer(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(p []byte) (int, error) {
	w.answer(http.StatusOK)
	w.slows.begin(w, len(p))
	defer w.slows.done(w)
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// started reports whether the client has been told anything yet.
func (w *response) started() bool { return w.code != 0 || w.hijacked }

// Flush implements http.Flusher.
func (w *response) Flush() {
	w.answer(http.StatusOK)
	w.slows.begin(w, 0)
	defer w.slows.done(w)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // every writer of net/http can flush
}

// CloseNotify is asked for by name by k8s.io/apiserver/pkg/endpoints/responsewriter.
func (w *response) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return make(chan bool) // never: the request's context tells the same
}

// Hijack implements http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		w.answer(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
