package proxy

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Destination is the extension server that receives a request.
type Destination struct {
	Backend *transport.Backend
	// APIService is the name of the registration. Failures contain it.
	APIService string
	// LongRunning marks a request as long-running that request.LongRunning does not recognize. It does not keep a
	// concurrency slot of the backend, its response may be silent for any time, and a deadline in its context does not
	// apply. Response headers must still arrive within Config.HeaderTimeout.
	LongRunning bool
	// InitialEvents selects how watches that request initial events are served.
	InitialEvents InitialEvents
	// ConvertTable and ConvertMetadata convert the backend's responses to get, list and watch into Tables and
	// PartialObjectMetadata.
	ConvertTable, ConvertMetadata bool
	// Alias is the version of the group that Backend serves, if it differs from the client's.
	Alias Alias
	// Statement is set if Backend is another Portico replica. It proves the user to the replica, in place of identity
	// headers. The zero Statement means that Backend is an extension server.
	Statement Statement
	// Continues is set for a request in a chain (package filters) whose handler does nothing more after Serve returns. The
	// body of a long-running response is then relayed after the handler has returned (filters.Continue).
	Continues bool
	// Quiet marks a request without a waiting client. Failures are recorded, but neither logged as warnings nor counted.
	Quiet bool
}

// Statement proves the user of a request to another replica.
type Statement struct {
	// Header is the header field that carries the result of State, in several values if it is long. If empty, the
	// destination is not a replica.
	Header string
	State  func(r *http.Request, u user.Info) (string, error)
}

// Config is the configuration of a Proxy. The zero value of each limit selects its default.
type Config struct {
	// Logger receives the full cause of every failure. May be nil.
	Logger *zap.Logger
	// Requests counts requests that the proxy terminated. May be nil.
	Requests *metrics.Requests
	// IdentityHeaders are headers, in addition to X-Remote-* and Impersonate-*, that a client must not send to a backend
	// and a backend must not send to a client: the headers with which a front proxy identifies the user to Portico. They
	// are compared in every spelling that a server might fold onto them.
	IdentityHeaders []string
	// IdentityHeaderPrefixes are prefixes of such headers.
	IdentityHeaderPrefixes []string
	// Pseudonym names the server in the Via header of requests to backends. Requests whose Via header already contains it
	// are refused, because every loop passes servers of one name twice. Default "portico".
	Pseudonym string
	// Condition is the type of the APIService condition that reports whether this server reaches the backend. Default
	// "Available".
	Condition string
	// HeaderTimeout limits the wait for response headers of requests that have no deadline. Default 60 s.
	HeaderTimeout time.Duration
	// BodyIdle limits the silence within a response of known length, and the time for which a client may not read any part
	// of a response that is not long-running. Default 30 s.
	BodyIdle time.Duration
	// UpgradeTimeout limits the connection setup and the wait for the response of an upgrade without a deadline. Default 30
	// s.
	UpgradeTimeout time.Duration
	// Lists is the budget of the lists that are held as a whole. With the zero value, the Proxy creates a budget for
	// itself.
	Lists ListMemory
	// TunnelIdle ends an upgraded connection without a byte in either direction. Default 4 h, like the kubelet.
	TunnelIdle time.Duration
}

// Proxy forwards requests to backends. It is safe for concurrent use.
type Proxy struct {
	config  Config
	log     *zap.Logger
	tunnels tunnels
	via     []string // appended to the client's Via
	// unwatched contains the requests with a client that is not watched yet (watchDelay).
	unwatched run.DelayQueue[*upstreamContext]
	// lists is the budget of lists that are held as a whole.
	lists ListMemory
}

// New returns a Proxy. It starts no goroutine.
func New(c Config) *Proxy {
	orDefault(&c.HeaderTimeout, time.Minute)
	orDefault(&c.BodyIdle, 30*time.Second)
	orDefault(&c.UpgradeTimeout, 30*time.Second)
	orDefault(&c.TunnelIdle, 4*time.Hour)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Pseudonym == "" {
		c.Pseudonym = Pseudonym
	}
	if c.Condition == "" {
		c.Condition = "Available"
	}
	c.Lists.setDefaults()
	return &Proxy{
		config: c, log: c.Logger, via: []string{"1.1 " + c.Pseudonym},
		tunnels:   tunnels{open: make(map[closer]struct{})},
		unwatched: run.DelayQueue[*upstreamContext]{Delay: watchDelay - watchSlack, Slack: watchSlack, Expire: (*upstreamContext).watch},
		lists:     c.Lists,
	}
}

func orDefault(field *time.Duration, value time.Duration) {
	if *field <= 0 {
		*field = value
	}
}

// Serve answers r from d and records the outcome in r.Record. The path and the query must have been checked.
//
// r's context ends the request when the client disconnects. A deadline in it holds until response headers are written;
// request.ClientContext documents how a disconnect is detected after that.
//
// Serve panics with http.ErrAbortHandler if a response must be aborted.
func (p *Proxy) Serve(w http.ResponseWriter, r *filters.Request, d Destination) {
	if failed := p.Attempt(w, r, d); failed != nil {
		failed.Answer()
	}
}

// Attempt is like Serve, but returns a failure if no part of a response was written. The caller answers it, or retries with
// another server.
func (p *Proxy) Attempt(w http.ResponseWriter, r *filters.Request, d Destination) *Failure {
	return p.exchange(w, r, d).attempt()
}

func (x *exchange) attempt() *Failure {
	if err := x.serve(); err != nil {
		return &Failure{x, err}
	}
	return nil
}

// Failure is a request that got no response.
type Failure struct {
	exchange *exchange
	err      error
}

// Answer writes a Status about the failure to the client.
func (f *Failure) Answer() { f.exchange.fail(f.err) }

// MayRepeat reports whether the request may be retried: it has no body, and either the backend did not process it or it
// changes nothing.
func (f *Failure) MayRepeat() bool {
	r := f.exchange.r
	var failed *transport.Error
	if r.ContentLength != 0 || r.Context().Err() != nil || !errors.As(f.err, &failed) || failed.Class == transport.ClassRequest {
		return false
	}
	return !failed.Sent || r.Method == http.MethodGet || r.Method == http.MethodHead
}

// Repeat records that the request is retried. It replaces Answer.
func (f *Failure) Repeat() {
	x := f.exchange
	x.proxy.log.Debug("retrying the request on another server", append(x.fields(), zap.Error(f.err))...)
}

func (p *Proxy) exchange(w http.ResponseWriter, r *filters.Request, d Destination) *exchange {
	r.Request = WithoutNominated(r.Request)
	return &exchange{
		proxy: p, w: w, r: r.Request, request: r, info: r.Info, dest: d,
		longRunning: d.LongRunning || r.LongRunning,
	}
}

// exchange is one request and its response.
type exchange struct {
	proxy       *Proxy
	w           http.ResponseWriter
	r           *http.Request
	request     *filters.Request // with r
	dest        Destination
	target      *Target // replaces dest if not nil
	info        *apirequest.RequestInfo
	longRunning bool
	slot        transport.Slot // concurrency slot of the backend
	upstream    upstreamContext
	url         url.URL      // URL of the request to the backend
	values      headerValues // header values of the request to the backend
	span        trace.Span   // current attempt, if the request is traced
	response    *http.Response
	continues   bool // the response is relayed after serve
}

// serve returns an error only if nothing was written.
func (x *exchange) serve() error {
	if x.looped() {
		return errLoop
	}
	who := x.request.User
	if who == nil {
		return errNoUser
	}
	upgrade, err := x.upgradeProtocol()
	if err != nil {
		return err
	}
	if x.aliased() {
		if err := x.checkAlias(upgrade); err != nil {
			return err
		}
	}
	made, err := x.checkInitialEvents()
	if err != nil {
		return err
	}
	if err := x.server().Admit(&x.slot, who.GetName()); err != nil {
		return err
	}
	defer x.slot.Release()
	x.request.Record.Admitted(&x.slot)
	defer x.endSpan(0, nil)

	header := x.requestHeader()
	if err := x.identify(header, who); err != nil {
		return err
	}
	if err := x.setURL(); err != nil {
		return err
	}
	if x.aliased() {
		if err := x.setAliasPath(); err != nil {
			return err
		}
	}
	if upgrade != "" {
		return x.upgrade(header, upgrade)
	}
	if made {
		return x.makeInitialEvents(header)
	}
	return x.roundTrip(header)
}

// identify writes the user's identity into header.
func (x *exchange) identify(header http.Header, u user.Info) error {
	if t := x.target; t != nil {
		if t.Identify == nil {
			return nil
		}
		return t.Identify(header, x.request)
	}
	statement := &x.dest.Statement
	if statement.Header == "" {
		return writeIdentity(header, &RequestHeaders, u, &x.values)
	}
	text, err := statement.State(x.r, u)
	if err != nil {
		return err
	}
	header[statement.Header] = x.splitStatement(text)
	return nil
}

// maxStatementValue limits a single value of the statement's header. httpmsg.MaxFieldValue limits all values together.
const maxStatementValue = 60 << 10

// splitStatement returns the values of the statement's header, which the other replica joins. The statement of a user with
// thousands of groups is long.
func (x *exchange) splitStatement(text string) []string {
	if len(text) <= maxStatementValue {
		return x.values.one(text)
	}
	var parts []string
	for len(text) > 0 {
		n := min(len(text), maxStatementValue)
		parts = append(parts, text[:n])
		text = text[n:]
	}
	return parts
}

// upstreamRequest returns the request to the backend, with the upstreamContext.
func (x *exchange) upstreamRequest(header http.Header, patience time.Duration) *http.Request {
	out := x.r.WithContext(x.beginUpstream(patience))
	out.URL, out.Host, out.Header = &x.url, x.host(), header
	out.RequestURI, out.RemoteAddr, out.TLS, out.Pattern = "", "", nil, ""
	out.Proto, out.ProtoMajor, out.ProtoMinor, out.Close = "HTTP/1.1", 1, 1, false
	out.Trailer, out.TransferEncoding, out.Form, out.PostForm, out.MultipartForm = nil, nil, nil, nil, nil
	if x.r.ContentLength == 0 {
		out.Body = nil
	} else {
		// The server closes the body after the response is written. Closing it earlier would read the part that the client
		// has not sent yet, and a client that waits for 100 Continue would deadlock with the proxy.
		out.Body = borrowedBody{x.r.Body}
	}
	return out
}

// roundTrip forwards a request that is not an upgrade.
func (x *exchange) roundTrip(header http.Header) error {
	conv := x.conversionFor(header)
	if x.aliased() {
		if err := x.dest.Alias.setAliasAccept(header); err != nil {
			return err
		}
	}
	out, up := x.upstreamRequest(header, x.proxy.config.HeaderTimeout), &x.upstream
	defer func() {
		if !x.continues {
			x.end()
		}
	}()
	resp, err := x.server().RoundTrip(out)
	if err != nil {
		return up.wrap(err)
	}
	x.response = resp
	if err := up.checkEnded(); err != nil {
		return err
	}
	if x.target != nil {
		if err := x.target.accept(resp); err != nil {
			return err
		}
	}
	if err := x.checkStatus(resp); err != nil {
		return err
	}
	if x.aliased() && x.r.Method == http.MethodHead {
		delete(resp.Header, "Content-Length") // it is the length in the backend's version
		resp.ContentLength = -1
	} else if x.aliased() {
		if err := x.dest.Alias.rewrite(resp, x.info.Verb == "watch"); err != nil {
			return err
		}
		x.chargeEvents(resp)
	}
	if x.longRunning {
		x.becomeLongRunning()
	}
	if conv != nil && convertible(resp) {
		return x.relayConverted(resp, conv, up)
	}
	if x.longRunning && x.dest.Continues {
		x.continues = true
		x.relayLater(resp, up)
		return nil
	}
	x.relay(resp, up)
	return nil
}

// end closes the response and releases the upstream context.
func (x *exchange) end() {
	if x.response != nil {
		_ = x.response.Body.Close() // reading the body already returned any error
	}
	x.upstream.release()
}

// becomeLongRunning releases the backend's concurrency slot and records the request as long-running.
func (x *exchange) becomeLongRunning() {
	x.slot.Release()
	x.request.Record.LongRunning()
}

// setURL keeps the request target as the client spelled it. Opaque preserves every byte: a re-encoded path would differ
// from the authorized path, and a re-encoded query loses parameters.
func (x *exchange) setURL() error {
	u := x.r.URL
	if t := x.target; t != nil {
		return x.setTargetURL(t)
	}
	raw := u.RawPath
	if raw == "" {
		raw = u.EscapedPath() // an empty RawPath means that this is the original spelling
	} else if decoded, err := url.PathUnescape(raw); err != nil || decoded != u.Path {
		return errAmbiguousPath
	}
	x.url = url.URL{
		Scheme: "https", Host: x.dest.Backend.ServerName(), Opaque: raw, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery,
	}
	return nil
}

var (
	errLoop          = errors.New("the request came back to a front door that forwarded it")
	errNoUser        = errors.New("no user in the request's context")
	errAmbiguousPath = errors.New("the path was rewritten in one spelling and not in the other")
)

// borrowedBody is a client's body that the proxy must not close.
type borrowedBody struct{ io.Reader }

// Close implements io.Closer.
func (borrowedBody) Close() error { return nil }

// Buffered returns the number of bytes that Read returns without waiting, and whether the body ends after them, if the body
// reports it.
func (b borrowedBody) Buffered() (n int, ended bool) {
	if known, ok := b.Reader.(engine.RequestBody); ok {
		return known.Buffered()
	}
	return 0, false
}
