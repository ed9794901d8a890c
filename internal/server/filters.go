package server

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// recoverFilter turns a panic into a 500 Status, or into an aborted stream when the response had begun: a client must
// never take half a response for a whole one.
func recoverFilter(log *zap.Logger, m *metrics.Requests, slow *slowClients) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, inner := newRequestContext(r)
			s.response.ctx, s.response.slowClients = s, slow
			defer func() {
				slow.forget(&s.response)
				p := recover()
				if p == nil {
					return
				}
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(http.ErrAbortHandler) // an abort on purpose: net/http closes the stream and stays quiet
				}
				m.Panics.Inc()
				log.Error("panic while serving a request",
					append(logging.PanicFields(p), zap.String("method", r.Method), zap.String("path", bounded(r.URL.Path)))...)
				if s.response.started() {
					panic(http.ErrAbortHandler)
				}
				respond.Error(w, r, apierrors.NewInternalError(errors.New("this request met a fault in the server; its log holds the details")))
			}()
			next.ServeHTTP(s.response.wrap(w, r), inner)
		})
	}
}

// canonicalPathFilter rejects ambiguous URLs before authentication.
func canonicalPathFilter(m *metrics.Requests) func(http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, r *http.Request, reason string, err *apierrors.StatusError) {
		m.Refused.WithLabelValues(reason).Inc()
		respond.Error(w, r, err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodConnect, http.MethodTrace:
				refuse(w, r, "method", notAllowed(r))
				return
			}
			target := r.RequestURI
			if !strings.HasPrefix(target, "/") {
				refuse(w, r, "target", apierrors.NewBadRequest("the request line must hold a path, not a URL"))
				return
			}
			if host, ok := r.Header["Host"]; ok && (len(host) != 1 || host[0] != r.Host) {
				// HTTP/2 may say it twice, and who comes behind us may read the other one (RFC 9113, 8.3.1).
				refuse(w, r, "target", apierrors.NewBadRequest("the request names two hosts"))
				return
			}
			path, query, _ := strings.Cut(target, "?")
			if err := request.CheckTarget(path, query); err != nil {
				refuse(w, r, "path", apierrors.NewBadRequest(err.Error()))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func requestInfoFilter(resolver *request.Resolver) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, err := resolver.Info(r)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			s, r := requestContextOf(r)
			s.Info = info
			next.ServeHTTP(w, r)
		})
	}
}

// maxAuditID is upstream's bound: a longer id from a client is cut off.
const maxAuditID = 64

// auditInitFilter gives the request its id (the caller's Audit-ID, if it sent one, so that the events of two servers
// can be joined) and the time at which it was received.
func auditInitFilter() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := firstValue(r.Header, "Audit-Id")
			if id == "" {
				id = newAuditID()
			}
			id = id[:min(len(id), maxAuditID)]
			s, r := requestContextOf(r)
			s.AuditID, s.Received = id, time.Now()
			s.record.started = s.Received
			h := w.Header()
			s.auditIDHeader = [1]string{id}
			h["Audit-Id"], h["Cache-Control"] = s.auditIDHeader[:], noCache
			next.ServeHTTP(w, r)
		})
	}
}

// firstValue is h.Get for names in net/http's spelling.
func firstValue(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var noCache = []string{"no-cache, private"} // shared, and never written to

// readyFilter refuses API requests until routes and rules are known. A 404 or a 403 before that would be wrong, and a
// garbage collector would act on it (kubernetes/kubernetes#104342).
func readyFilter(ready func() error) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := ready(); err != nil && isAPIPath(r.URL.Path) {
				refusal := apierrors.NewServiceUnavailable("the front door is starting: " + err.Error())
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// deadlineFilter ends requests that are not long-running. The `timeout` parameter can only lower the limit, as
// upstream.
func deadlineFilter(limit time.Duration) func(http.Handler) http.Handler {
	limit = requestLimit(limit)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, _ := requestInfo(r.Context())
			if request.LongRunning(info) {
				if s, ok := requestContextFrom(r.Context()); ok {
					s.response.setLongRunning()
				}
				next.ServeHTTP(w, r)
				return
			}
			timeout, err := requestTimeout(r, limit)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			s, r := requestContextOf(r)
			s.SetDeadline(s.receivedAt().Add(timeout))
			defer s.Finish()
			next.ServeHTTP(w, r)
		})
	}
}

// requestLimit is a limit, or the default of it.
func requestLimit(limit time.Duration) time.Duration {
	if limit <= 0 {
		return time.Minute
	}
	return limit
}

func requestTimeout(r *http.Request, limit time.Duration) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "timeout=") {
		return limit, nil
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return limit, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("invalid timeout specified in the request URL: %q is not a duration such as 30s", text)
	}
	if timeout <= 0 || timeout > limit {
		return limit, nil
	}
	return timeout, nil
}

// corsFilter answers browsers of the allowed origins. With none allowed, no header is ever added.
//
// Browsers ask no server before they open a websocket to another origin, and send a client certificate along. So one
// from a page that is neither ours nor of an allowed origin is refused (attack row A30). Other clients send no Origin,
// or ours.
func corsFilter(allowed []string) (func(http.Handler) http.Handler, error) {
	var patterns []*regexp.Regexp
	for _, text := range allowed {
		p, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("allowed origin %q: %w", text, err)
		}
		patterns = append(patterns, p)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := firstValue(r.Header, "Origin")
			known := origin == ""
			for _, p := range patterns {
				if origin == "" || !p.MatchString(origin) {
					continue
				}
				known = true
				h := w.Header()
				h.Set("Access-Control-Allow-Origin", origin)
				h.Add("Vary", "Origin")
				h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
				h.Set("Access-Control-Allow-Headers", "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
				h.Set("Access-Control-Expose-Headers", "Date")
				h.Set("Access-Control-Allow-Credentials", "true")
				if r.Method == http.MethodOptions {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				break
			}
			if !known && upgrades(r) && !sameHost(origin, r.Host) {
				respond.Error(w, r, apierrors.NewForbidden(noResource, "",
					errors.New("pages of this origin must not open websockets here; --cors-allowed-origins lists those that may")))
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// upgrades reports whether a request asks for another protocol on its connection.
func upgrades(r *http.Request) bool { return r.ProtoMajor == 1 && len(r.Header["Upgrade"]) > 0 }

// sameHost reports whether a page of origin came from host. The scheme is not compared: some clients spell it wss.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// authenticationFilter identifies the client. A credential that was presented and failed is 401, never anonymous.
func authenticationFilter(a authenticator.Request, trail Auditor, log *zap.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, r := requestContextOf(r)
			credential := &s.Credential
			answer, ok, err := a.AuthenticateRequest(r)
			if err != nil || !ok {
				if err != nil {
					// The reason is for the operator: a client is told only that it failed.
					log.Info("authentication failed", zap.String("path", bounded(r.URL.Path)), zap.String("client", r.RemoteAddr),
						zap.String("audit-id", request.AuditID(r.Context())), zap.Error(err))
				}
				endConnection(w, r)
				auditRefusal(trail, w, r)
				respond.Error(w, r, apierrors.NewUnauthorized("Unauthorized"))
				return
			}
			if answer.User.GetName() == user.Anonymous {
				endConnection(w, r)
			}
			s.authWarnings.addTo(w.Header())
			s.record.user, s.record.credential, s.User = answer.User, credential.Kind, answer.User
			if !credential.Expires.IsZero() && request.LongRunning(s.Info) {
				// A watch that outlives the identity that opened it would show what it may not see any more (B10).
				ctx, cancel := context.WithDeadline(r.Context(), credential.Expires)
				defer cancel()
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// endConnection lets an HTTP/2 connection end with the requests that are on it. A client without a credential gets no
// second round of streams to open and reset on one connection (CVE-2023-44487, attack rows D1 and D2).
func endConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		w.Header().Set("Connection", "close")
	}
}

// newAuditID is a random UUID (RFC 9562, version 4). Ids must differ and need not be secret: whoever may read one of
// the logs may read them all, so the system's cryptographic source is not used for each request.
func newAuditID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	for _, dash := range [...]int{8, 13, 18, 23} {
		text[dash] = '-'
	}
	return string(text[:])
}
