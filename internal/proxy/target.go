package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// Target is a server other than an extension server: a kubelet, a pod, a pod of a Service, or another API server. The caller
// determines the path and the identity of requests to it. Header filtering, upgrades and failures are the same as for an
// extension server.
type Target struct {
	// Server is the server that receives the requests.
	Server Server
	// Host is the server's host:port.
	Host string
	// Path and RawQuery are the request target, as they are sent. Path begins with a slash.
	Path, RawQuery string
	// Prefix is the client's path before Path. Redirects to the same server are rewritten to begin with it. If empty,
	// redirects are refused.
	Prefix string
	// Pseudonym names this server in the Via header, like Config.Pseudonym. If it is empty, Via is not sent.
	Pseudonym string
	// Name begins the text of failures, such as "the kubelet of node n1 at 10.0.0.1:10250".
	Name string
	// Details are the StatusDetails of failures.
	Details metav1.StatusDetails
	// Explain replaces the text about the cause of a failure. If nil, the text for extension servers is used.
	Explain func(cause, text string) string
	// Identify writes the identity of a request into its header for the server. If nil, requests carry no identity.
	Identify func(header http.Header, r *filters.Request) error
	// Judge returns the error that is answered instead of a response, or nil. It may change the header. If Judge is nil, every
	// response is relayed. Redirects is set if Judge checks redirects, which are then relayed without Prefix, too.
	Judge     func(*http.Response) error
	Redirects bool
	// Bounded is set if only the requests are long-running that filters.Request.LongRunning identifies. Otherwise all are.
	Bounded bool
}

// Server sends requests to a Target. transport.Backend and transport.Plain implement it.
type Server interface {
	// Admit takes a concurrency slot for a user's request.
	Admit(slot *transport.Slot, user string) error
	// RoundTrip sends a request. Errors are *transport.Error.
	RoundTrip(r *http.Request) (*http.Response, error)
	// DialUpgrade opens a connection for one request. Errors are *transport.Error.
	DialUpgrade(ctx context.Context) (net.Conn, error)
	// Tunnels adds n to the count of open upgraded connections. n is negative if connections closed.
	Tunnels(n int)
	// Broken counts a response that ended too early.
	Broken()
}

var (
	_ Server = (*transport.Backend)(nil)
	_ Server = (*transport.Plain)(nil)
)

// escapeUnwise escapes the bytes that httpmsg.Path allows and net/url does not.
var escapeUnwise = strings.NewReplacer("^", "%5E", "`", "%60", "{", "%7B", "|", "%7C", "}", "%7D")

// setTargetURL sets the URL of a request to t. (*url.URL).RequestURI would parse an Opaque path that begins with two
// slashes as a host and a path, and return an absolute URL. Such a path is therefore stored in RawPath, where net/url would
// escape the whole path again if it contained a byte that is not allowed there.
func (x *exchange) setTargetURL(t *Target) error {
	x.url = url.URL{Scheme: "https", Host: t.Host, Opaque: t.Path, RawQuery: t.RawQuery}
	if !strings.HasPrefix(t.Path, "//") {
		return nil
	}
	path, err := url.PathUnescape(t.Path)
	if err != nil {
		return errAmbiguousPath
	}
	x.url.Opaque, x.url.Path, x.url.RawPath = "", path, escapeUnwise.Replace(t.Path)
	return nil
}

func (x *exchange) server() Server {
	if t := x.target; t != nil {
		return t.Server
	}
	return x.dest.Backend
}

func (x *exchange) host() string {
	if t := x.target; t != nil {
		return t.Host
	}
	return x.dest.Backend.ServerName()
}

// subject returns the server that failures are about.
func (x *exchange) subject() string {
	if t := x.target; t != nil {
		return t.Name
	}
	return "the extension server of APIService " + x.dest.APIService
}

func (x *exchange) destinationField() zap.Field {
	if t := x.target; t != nil {
		return zap.String("target", t.Name)
	}
	return zap.String("apiservice", x.dest.APIService)
}

// accept returns the error that is answered instead of a response.
func (t *Target) accept(resp *http.Response) error {
	if t.Judge != nil {
		if err := t.Judge(resp); err != nil {
			return err
		}
	}
	return t.rewriteLocation(resp)
}

// rewriteLocation rewrites a redirect to the same server so that it leads below Prefix. It refuses any other redirect,
// because a client that follows it would send its credentials there (CVE-2022-3172).
func (t *Target) rewriteLocation(resp *http.Response) error {
	location := resp.Header.Get("Location")
	if location == "" || t.Prefix == "" {
		return nil
	}
	refused := &responseError{reason: "BackendRedirect", text: "attempted to redirect the request to another server, which is not permitted", code: resp.StatusCode}
	u, err := url.Parse(location)
	if err != nil || u.Host != "" && u.Host != t.Host || u.Opaque != "" || strings.Contains(location, `\`) {
		return refused
	}
	if u.Host == "" && u.Scheme != "" {
		return refused
	}
	path := u.EscapedPath()
	if !strings.HasPrefix(path, "/") { // relative to the directory of the request
		path = "/" + strings.TrimLeft(t.Path[:strings.LastIndexByte(t.Path, '/')+1]+path, "/") // two slashes would begin a host
	}
	clean, err := url.Parse(path)
	if err != nil {
		return refused
	}
	path = (&url.URL{Path: "/"}).ResolveReference(clean).EscapedPath() // removes dot segments, which could lead out of Prefix
	if strings.HasPrefix(path, "//") {
		return refused
	}
	if !strings.HasPrefix(path, t.Prefix+"/") {
		path = t.Prefix + path
	}
	out := url.URL{RawQuery: u.RawQuery, Fragment: u.Fragment}
	if rest := out.String(); rest != "" {
		path += rest
	}
	resp.Header.Set("Location", path)
	return nil
}

func (t *Target) explain(cause, text string) string {
	if t.Explain == nil {
		return text
	}
	return t.Explain(cause, text)
}

func (t *Target) status(code int, reason metav1.StatusReason, cause metav1.CauseType, text string, retryAfter int32, auditID string) *apierrors.StatusError {
	message := t.Name + " cannot serve the request: " + text
	if code == http.StatusServiceUnavailable {
		message = "the server is currently unable to handle the request: " + t.Name + ": " + text
	}
	details := t.Details
	details.Causes, details.RetryAfterSeconds = []metav1.StatusCause{{Type: cause, Message: text}}, retryAfter
	e := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &details,
	}}
	respond.AddAuditID(&e.ErrStatus, auditID)
	return e
}

// ServeTarget answers r from t, like Serve does from an extension server.
func (p *Proxy) ServeTarget(w http.ResponseWriter, r *filters.Request, t *Target) {
	if failed := p.AttemptTarget(w, r, t); failed != nil {
		failed.Answer()
	}
}

// AttemptTarget is like Attempt for a Target.
func (p *Proxy) AttemptTarget(w http.ResponseWriter, r *filters.Request, t *Target) *Failure {
	return p.exchangeWith(w, r, t).attempt()
}

func (p *Proxy) exchangeWith(w http.ResponseWriter, r *filters.Request, t *Target) *exchange {
	x := p.exchange(w, r, Destination{LongRunning: !t.Bounded})
	x.target = t
	return x
}

// RoundTrip sends r, which the caller built, to a Target. Errors are the Status that Serve would write.
func (p *Proxy) RoundTrip(r *http.Request, t *Target) (*http.Response, error) {
	x := p.exchangeWith(nil, filters.RequestOf(r), t)
	resp, err := t.Server.RoundTrip(r)
	if err != nil {
		return nil, x.failureStatus(err)
	}
	return resp, nil
}

// Dial opens a connection to a Target, which the caller must close. A drain closes it at the latest. Errors are the Status
// that Serve would write.
func (p *Proxy) Dial(r *http.Request, t *Target) (net.Conn, error) {
	x := p.exchangeWith(nil, filters.RequestOf(r), t)
	if p.tunnels.draining() {
		return nil, x.failureStatus(errDraining)
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.config.UpgradeTimeout)
	defer cancel()
	conn, err := t.Server.DialUpgrade(ctx)
	if err != nil {
		return nil, x.failureStatus(err)
	}
	held := &heldConn{Conn: conn}
	held.closed = sync.OnceFunc(func() {
		p.tunnels.remove(held)
		t.Server.Tunnels(-1)
	})
	if !p.tunnels.add(held) {
		_ = conn.Close() // it was not used
		return nil, x.failureStatus(errDraining)
	}
	t.Server.Tunnels(1)
	return held, nil
}

// failureStatus returns the Status of a failure and logs it.
func (x *exchange) failureStatus(err error) error {
	if errors.Is(err, context.Canceled) && x.r.Context().Err() != nil {
		err = errors.Join(errClientGone, err)
	}
	status := x.statusOf(err)
	x.proxy.log.Warn("request not served", append(x.fields(), zap.Int32("code", status.ErrStatus.Code), zap.String("told", status.ErrStatus.Message), zap.Error(err))...)
	return status
}

// heldConn is a connection to a Target. Its caller copies the data.
type heldConn struct {
	net.Conn
	closed func()
}

func (c *heldConn) close() { _ = c.Conn.Close() } // the caller reads the end and closes it

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
