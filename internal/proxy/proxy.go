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
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Destination is where a request goes.
type Destination struct {
	// Backend is the extension server that it is sent to.
	Backend *transport.Backend
	// Target, if set, is where it is sent instead. Of the fields below, only LongRunning and Observer count then.
	Target *Target
	// APIService is the name of the registration that says so; failures name it.
	APIService string
	// LongRunning marks a request as long-running that request.LongRunning does not know to be so: it holds no lasting
	// concurrency slot of the backend, its response may be silent for as long as it likes, and a deadline in its
	// context does not apply. Response headers must still come within Config.HeaderTimeout.
	LongRunning bool
	// MakeInitialEvents makes the initial events of watches that ask for them, of a list; the other two do not apply then.
	MakeInitialEvents bool
	// RejectSendInitialEvents answers 422 to watches that ask for initial events.
	RejectSendInitialEvents bool
	// InitialEvents says for which resources that is done too. Nil: for none.
	InitialEvents InitialEvents
	// ConvertTable and ConvertMetadata make Tables and PartialObjectMetadata of the backend's responses to get, list
	// and watch.
	ConvertTable, ConvertMetadata bool
	// Alias, if set, says that Backend serves another version of the group.
	Alias *Alias
	// Statement, if set, says that Backend is another replica of the front door: what proves the user to it, in place of identity
	// headers, and the header that carries that.
	Statement Statement
	// Fallback, if set, is asked once where to send a request that got no response of Backend, and that may be sent again.
	Fallback Fallback
	// Observer is told what becomes of the request. May be nil.
	Observer Observer
	// Continues is set for a request in a chain (package filters) whose handler does nothing more when Serve has returned. The body of a
	// long-running response is then relayed after that (filters.Continue).
	Continues bool
	// Quiet is for a request that no client waits for: failures are told to the Observer, and neither logged as warnings nor counted.
	Quiet bool
}

// Fallback knows where requests may go that got no response.
type Fallback interface {
	// Elsewhere returns another destination of a request. False: there is none, so that the request fails.
	Elsewhere(r *http.Request, failed Destination) (Destination, bool)
}

// Statement is what another replica is told about a request.
type Statement struct {
	// Header carries what State returns, in several values if it is long. Empty: the destination is no replica.
	Header string
	State  func(r *http.Request, u user.Info) (string, error)
}

// Config is what a Proxy needs. The zero value of each limit means its default.
type Config struct {
	// Logger gets the full cause of every failure. May be nil.
	Logger *zap.Logger
	// Requests counts requests that the proxy ended. May be nil.
	Requests *metrics.Requests
	// IdentityHeaders are headers, beside X-Remote-* and Impersonate-*, that no client may send to a backend and no backend
	// to a client: those by which a front proxy before us says who a request is from. They are compared in every spelling that
	// somebody might fold onto them.
	IdentityHeaders []string
	// IdentityHeaderPrefixes are what such headers may begin with.
	IdentityHeaderPrefixes []string
	// Pseudonym names the server in the header Via of requests to backends. Requests that name it already are refused: every loop
	// passes servers of one name twice. Default "portico".
	Pseudonym string
	// Condition is the type of the APIService's condition that says whether this server reaches the backend. Default "Available".
	Condition string
	// HeaderTimeout bounds the wait for response headers of requests that have no deadline. Default 60 s.
	HeaderTimeout time.Duration
	// BodyIdle bounds the silence within a response of known length, and how long a client may leave any part of a
	// response that is not long-running untaken. Default 30 s.
	BodyIdle time.Duration
	// UpgradeTimeout bounds connecting, asking and being answered on an upgrade without a deadline. Default 30 s.
	UpgradeTimeout time.Duration
	// Lists is the budget of the lists that are held as a whole. The zero value is a budget of its own.
	Lists ListMemory
	// TunnelIdle ends an upgraded connection without a byte in either direction. Default 4 h, as a kubelet does.
	TunnelIdle time.Duration
}

// Proxy forwards requests to backends. It is safe for concurrent use.
type Proxy struct {
	config  Config
	log     *zap.Logger
	tunnels tunnels
	via     []string // what is added to Via
	// unwatched are the requests that nothing watches yet (watchDelay).
	unwatched run.DelayQueue[*upstreamContext]
	// lists is the budget of lists that are held as a whole.
	lists ListMemory
}

// New returns a Proxy. It starts nothing.
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

// Serve answers r from t. User, RequestInfo and audit id are in r's context; the path and the query were checked.
//
// r's context ends the request when the client leaves. A deadline in it holds until response headers are written, and
// not beyond; request.ClientContext says how the client is noticed beyond it.
//
// Serve panics with http.ErrAbortHandler when a response must be broken off.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, t Destination) {
	x := p.exchange(w, r, t)
	err := x.serve()
	if err != nil && t.Fallback != nil && mayRepeat(r, err) {
		if next, ok := t.Fallback.Elsewhere(r, t); ok {
			p.log.Debug("request goes to another replica", append(x.fields(), zap.Error(err))...)
			next.Continues = t.Continues
			x = p.exchange(w, r, next)
			err = x.serve()
		}
	}
	if err != nil {
		x.fail(err)
	}
}

func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, t Destination) *exchange {
	x := &exchange{proxy: p, w: w, r: r, dest: t}
	if x.dest.Observer == nil {
		x.dest.Observer = noObserver{}
	}
	x.info, _ = apirequest.RequestInfoFrom(r.Context())
	x.longRunning = t.LongRunning || request.LongRunning(x.info)
	return x
}

// mayRepeat reports whether a request that failed may be sent once more: it has no body, and the backend did nothing with it, or it
// is one that changes nothing.
func mayRepeat(r *http.Request, err error) bool {
	var failed *transport.Error
	if r.ContentLength != 0 || r.Context().Err() != nil || !errors.As(err, &failed) || failed.Class == transport.ClassRequest {
		return false
	}
	return !failed.Sent || r.Method == http.MethodGet || r.Method == http.MethodHead
}

// exchange is one request and its response.
type exchange struct {
	proxy       *Proxy
	w           http.ResponseWriter
	r           *http.Request
	dest        Destination
	info        *apirequest.RequestInfo
	longRunning bool
	slot        transport.Slot // of the backend's concurrency slots
	upstream    upstreamContext
	url         url.URL      // of the request to the backend
	values      headerValues // of its headers
	span        trace.Span   // of the attempt under way, when the request is traced
	response    *http.Response
	continues   bool // its response is relayed after serve
}

// serve returns an error as long as nothing was written.
func (x *exchange) serve() error {
	if x.proxy.looped(x.r.Header) {
		return errLoop
	}
	who, ok := apirequest.UserFrom(x.r.Context())
	if !ok {
		return errNoUser
	}
	upgrade, err := x.upgradeProtocol()
	if err != nil {
		return err
	}
	if x.dest.Alias != nil {
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
	x.dest.Observer.Admitted(&x.slot)
	defer x.endSpan(0, nil)

	header := x.requestHeader()
	if err := x.identify(header, who); err != nil {
		return err
	}
	if err := x.setURL(); err != nil {
		return err
	}
	if x.dest.Alias != nil {
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

// identify says whose request it is.
func (x *exchange) identify(header http.Header, u user.Info) error {
	if x.dest.Target != nil {
		return nil
	}
	statement := &x.dest.Statement
	if statement.Header == "" {
		return writeIdentity(header, u, &x.values)
	}
	text, err := statement.State(x.r, u)
	if err != nil {
		return err
	}
	header[statement.Header] = x.splitStatement(text)
	return nil
}

// maxStatementValue bounds a value of the statement's header: httpmsg.MaxFieldValue bounds all values.
const maxStatementValue = 60 << 10

// splitStatement returns the values of the statement's header, which the other replica joins. A user with thousands of groups
// has a long statement.
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

// upstreamRequest is the request to the backend, with the upstreamContext.
func (x *exchange) upstreamRequest(header http.Header, patience time.Duration) *http.Request {
	out := x.r.WithContext(x.beginUpstream(patience))
	out.URL, out.Host, out.Header = &x.url, x.host(), header
	out.RequestURI, out.RemoteAddr, out.TLS, out.Pattern = "", "", nil, ""
	out.Proto, out.ProtoMajor, out.ProtoMinor, out.Close = "HTTP/1.1", 1, 1, false
	out.Trailer, out.TransferEncoding, out.Form, out.PostForm, out.MultipartForm = nil, nil, nil, nil, nil
	if x.r.ContentLength == 0 {
		out.Body = nil
	} else {
		// The server closes the body once the answer is out. Closing it earlier means reading what the client has not
		// sent yet, and a client that waits for 100 Continue would wait for us as we for it.
		out.Body = borrowedBody{x.r.Body}
	}
	return out
}

// roundTrip forwards a request that is no upgrade.
func (x *exchange) roundTrip(header http.Header) error {
	conv := x.conversionFor(header)
	if x.dest.Alias != nil {
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
	if x.dest.Target != nil {
		if err := x.dest.Target.rewriteLocation(resp); err != nil {
			return err
		}
	}
	if err := x.checkStatus(resp); err != nil {
		return err
	}
	if x.dest.Alias != nil && x.r.Method == http.MethodHead {
		delete(resp.Header, "Content-Length") // that of the other version
		resp.ContentLength = -1
	} else if x.dest.Alias != nil {
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

// end ends what roundTrip has begun at the backend.
func (x *exchange) end() {
	if x.response != nil {
		_ = x.response.Body.Close() // an error of the body was met while it was read
	}
	x.upstream.release()
}

// becomeLongRunning releases the backend's concurrency slot, and tells the observer: what follows may go on for long.
func (x *exchange) becomeLongRunning() {
	x.slot.Release()
	x.dest.Observer.LongRunning()
}

// setURL keeps the request's target as the client spelled it. Opaque keeps every byte: re-encoding a path would make it
// another one than was authorised, and re-encoding a query loses parameters.
func (x *exchange) setURL() error {
	u := x.r.URL
	if t := x.dest.Target; t != nil {
		return x.setTargetURL(t)
	}
	raw := u.RawPath
	if raw == "" {
		raw = u.EscapedPath() // no RawPath means that this is how it was spelled
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

// Observer is told what becomes of a request, on the goroutine that serves it: for the access log and the audit event.
type Observer interface {
	// Admitted is called with the request's concurrency slot of its backend, which it has until it is over. Whoever
	// finds that the client does not read the response may stall it.
	Admitted(filters.Slot)
	// Attempted is called with the endpoint that is being tried, and how many attempts there are with this one.
	Attempted(endpoint string, number int)
	// Failed is called with the message that the client is told, or would be, had its response not begun.
	Failed(text string)
	// LongRunning is called, at most once, when what follows may go on for long: a watch, a log or a console has begun.
	// The request's concurrency slot is released in this moment.
	LongRunning()
}

// noObserver is the Observer of requests without one.
type noObserver struct{}

func (noObserver) Admitted(filters.Slot) {}
func (noObserver) Attempted(string, int) {}
func (noObserver) Failed(string)         {}
func (noObserver) LongRunning()          {}

// borrowedBody is a client's body that is not ours to close.
type borrowedBody struct{ io.Reader }

// Close implements io.Closer.
func (borrowedBody) Close() error { return nil }

// Buffered is how many bytes a Read finds, and whether nothing comes after them, as far as the body knows.
func (b borrowedBody) Buffered() (n int, ended bool) {
	if known, ok := b.Reader.(interface{ Buffered() (int, bool) }); ok {
		return known.Buffered()
	}
	return 0, false
}
