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
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Destination is the extension server that a request goes to.
type Destination struct {
	Backend *transport.Backend
	// APIService is the name of the registration that says so; failures name it.
	APIService string
	// LongRunning marks a request as long-running that request.LongRunning does not know to be so: it holds no lasting
	// concurrency slot of the backend, its response may be silent for as long as it likes, and a deadline in its
	// context does not apply. Response headers must still come within Config.HeaderTimeout.
	LongRunning bool
	// InitialEvents says what becomes of watches that ask for initial events.
	InitialEvents InitialEvents
	// ConvertTable and ConvertMetadata make Tables and PartialObjectMetadata of the backend's responses to get, list
	// and watch.
	ConvertTable, ConvertMetadata bool
	// Alias is the version of the group that Backend serves, if it is another one than the client's.
	Alias Alias
	// Statement says that Backend is another replica of the front door: what proves the user to it, in place of identity headers, and the
	// header that carries that. The zero Statement: it is an extension server.
	Statement Statement
	// Continues is set for a request in a chain (package filters) whose handler does nothing more when Serve has returned. The body of a
	// long-running response is then relayed after that (filters.Continue).
	Continues bool
	// Quiet is for a request that no client waits for: failures are recorded, and neither logged as warnings nor counted.
	Quiet bool
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

// Serve answers r from d, and records in r.Record what becomes of it. The path and the query were checked.
//
// r's context ends the request when the client leaves. A deadline in it holds until response headers are written, and
// not beyond; request.ClientContext says how the client is noticed beyond it.
//
// Serve panics with http.ErrAbortHandler when a response must be broken off.
func (p *Proxy) Serve(w http.ResponseWriter, r *filters.Request, d Destination) {
	if failed := p.Attempt(w, r, d); failed != nil {
		failed.Answer()
	}
}

// Attempt is Serve, but returns a failure before anything of a response was written. The caller answers it, or asks somebody else.
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

// Answer answers the client with a Status about the failure.
func (f *Failure) Answer() { f.exchange.fail(f.err) }

// MayRepeat reports whether the request may be sent once more: it has no body, and the backend did nothing with it, or it is one that changes
// nothing.
func (f *Failure) MayRepeat() bool {
	r := f.exchange.r
	var failed *transport.Error
	if r.ContentLength != 0 || r.Context().Err() != nil || !errors.As(f.err, &failed) || failed.Class == transport.ClassRequest {
		return false
	}
	return !failed.Sent || r.Method == http.MethodGet || r.Method == http.MethodHead
}

// Repeat notes that the request is sent once more, in place of Answer.
func (f *Failure) Repeat() {
	x := f.exchange
	x.proxy.log.Debug("request goes to another server", append(x.fields(), zap.Error(f.err))...)
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
	target      *Target // where it goes in place of an extension server; nil: to dest
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

// identify says whose request it is.
func (x *exchange) identify(header http.Header, u user.Info) error {
	if x.target != nil {
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
		if err := x.target.rewriteLocation(resp); err != nil {
			return err
		}
	}
	if err := x.checkStatus(resp); err != nil {
		return err
	}
	if x.aliased() && x.r.Method == http.MethodHead {
		delete(resp.Header, "Content-Length") // that of the other version
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

// end ends what roundTrip has begun at the backend.
func (x *exchange) end() {
	if x.response != nil {
		_ = x.response.Body.Close() // an error of the body was met while it was read
	}
	x.upstream.release()
}

// becomeLongRunning releases the backend's concurrency slot, and records that what follows may go on for long.
func (x *exchange) becomeLongRunning() {
	x.slot.Release()
	x.request.Record.LongRunning()
}

// setURL keeps the request's target as the client spelled it. Opaque keeps every byte: re-encoding a path would make it
// another one than was authorised, and re-encoding a query loses parameters.
func (x *exchange) setURL() error {
	u := x.r.URL
	if t := x.target; t != nil {
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
