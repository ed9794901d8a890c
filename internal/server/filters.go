package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/run/processors"
)

// recoverFilter creates the context and the response recorder of a request, recovers panics, and ends the request.
func recoverFilter(log *zap.Logger, m *metrics.Requests, slow *slowClients) func(http.Handler) http.Handler {
	recovers := filters.Recover(log, m)
	return func(next http.Handler) http.Handler {
		next = recovers(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			processors.NoteWork()
			s, inner := newRequestContext(r)
			s.response.ctx, s.response.slowClients = s, slow
			defer slow.forget(&s.response)
			next.ServeHTTP(s.response.wrap(w, r), inner)
		})
	}
}

// clusterFilter records the cluster of a request.
func clusterFilter(of func(context.Context) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recordFrom(r.Context()).Cluster = of(r.Context())
			next.ServeHTTP(w, r)
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
				// HTTP/2 can carry the host twice, and a backend may read the other one (RFC 9113, 8.3.1).
				refuse(w, r, "target", apierrors.NewBadRequest("the request names two hosts"))
				return
			}
			path, query, _ := strings.Cut(target, "?")
			r, err := request.Canonicalize(r, path, query)
			if err != nil {
				refuse(w, r, "path", apierrors.NewBadRequest(err.Error()))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// auditInitFilter sets the audit ID of a request and the time at which it was received. As with kube-apiserver, any
// client may choose the ID, and can then find its requests in the audit log. The ID proves nothing, and may occur
// twice.
func auditInitFilter() func(http.Handler) http.Handler {
	auditID := filters.AuditID(filters.CallersAuditID)
	return func(next http.Handler) http.Handler {
		return auditID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, r := requestContextOf(r)
			s.record.Started = s.Received
			w.Header()["Cache-Control"] = noCache
			next.ServeHTTP(w, r)
		}))
	}
}

// firstValue is h.Get for names in canonical form.
func firstValue(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var noCache = []string{"no-cache, private"} // shared; never modified

// readyFilter refuses API requests until routes and rules are known. Before that, a 404 or a 403 would be wrong, and
// a garbage collector would act on it (kubernetes/kubernetes#104342).
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

// deadlineFilter ends requests that are not long-running. As with upstream, the `timeout` parameter can only lower
// the limit.
func deadlineFilter(limit time.Duration, adjust func(time.Duration) time.Duration) func(http.Handler) http.Handler {
	limit = requestLimit(limit)
	longRunning := func(r *http.Request) bool {
		info, _ := requestInfo(r.Context())
		if !request.LongRunning(info) {
			return false
		}
		if s, ok := requestContextFrom(r.Context()); ok {
			s.response.SetLongRunning()
		}
		return true
	}
	return filters.Deadline(longRunning, func(r *http.Request) (time.Duration, error) {
		timeout, err := requestTimeout(r, limit)
		if adjust != nil {
			timeout = adjust(timeout)
		}
		return timeout, err
	})
}

// requestLimit returns limit, or the default if limit is not positive.
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

// corsFilter adds CORS headers for browsers of the allowed origins. If no origin is allowed, it adds no headers. It
// rejects WebSockets of pages if filters.MayUpgrade does not trust their origin, unless anyOrigin is true.
func corsFilter(allowed []string, anyOrigin bool) (func(http.Handler) http.Handler, error) {
	var patterns []*regexp.Regexp
	for _, text := range allowed {
		p, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("allowed origin %q: %w", text, err)
		}
		patterns = append(patterns, p)
	}
	isAllowed := func(origin string) bool {
		return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(origin) })
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if origin := firstValue(r.Header, "Origin"); origin != "" && isAllowed(origin) {
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
			}
			if !anyOrigin && upgrades(r) && !filters.MayUpgrade(r, isAllowed) {
				respond.Error(w, r, apierrors.NewForbidden(noResource, "",
					errors.New("pages of this origin must not open websockets here; --cors-allowed-origins lists those that may")))
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// upgrades reports whether a request upgrades its connection to another protocol.
func upgrades(r *http.Request) bool { return r.ProtoMajor == 1 && len(r.Header["Upgrade"]) > 0 }

// withoutExtra returns an authenticator whose users do not have a key of extra. An empty key means none.
func withoutExtra(a authenticator.Request, key string) authenticator.Request {
	if key == "" {
		return a
	}
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		answer, ok, err := a.AuthenticateRequest(r)
		if err != nil || !ok || answer.User.GetExtra()[key] == nil {
			return answer, ok, err
		}
		u, changed := answer.User, *answer
		extra := maps.Clone(u.GetExtra())
		delete(extra, key)
		changed.User = &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
		return &changed, true, nil
	})
}

// authenticationFilter identifies the client. A credential that is present but invalid leads to a 401, never to
// anonymous access.
func authenticationFilter(a authenticator.Request, trail Auditor, log *zap.Logger) func(http.Handler) http.Handler {
	authenticate := func(r *http.Request) (user.Info, error) {
		answer, ok, err := a.AuthenticateRequest(r)
		if err != nil || !ok {
			return nil, err
		}
		return answer.User, nil
	}
	refused := func(w http.ResponseWriter, r *http.Request) {
		endConnection(w, r)
		auditRefusal(trail, w, r)
	}
	filter := filters.Authentication(authenticate, refused, log)
	return func(next http.Handler) http.Handler { return filter(authenticatedFilter(next)) }
}

// authenticatedFilter records the client, and ends a long-running request when its credential expires.
func authenticatedFilter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, r := requestContextOf(r)
		if s.User.GetName() == user.Anonymous {
			endConnection(w, r)
		}
		s.authWarnings.addTo(w.Header())
		s.record.User, s.record.Credential = s.User, s.Credential.Kind
		if !s.Credential.Expires.IsZero() && request.LongRunning(s.Info) {
			// A watch that outlives its credential would show objects that the client may no longer see (B10).
			ctx, cancel := context.WithDeadline(r.Context(), s.Credential.Expires)
			s.AtEnd(filters.StepFunc(func(any) { cancel() }))
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// endConnection ends an HTTP/2 connection after its current requests. A client without a credential then cannot open
// and reset a second round of streams on one connection (CVE-2023-44487, attack rows D1 and D2).
func endConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		w.Header().Set("Connection", "close")
	}
}

// MaxGoawayChance is upstream's limit. Above it, clients would spend their time on handshakes.
const MaxGoawayChance = 0.02

// goawayFilter makes a few HTTP/2 clients reconnect, so that they spread over replicas behind a load balancer that
// balances only connections. The requests on the connection finish first. interval is the minimum time between two
// GOAWAYs; 0 means none. Go's HTTP/2 client opens a connection for each request that finds no free stream, so a
// single GOAWAY to a busy client leads to dozens of handshakes.
func goawayFilter(chance float64, interval time.Duration) (func(http.Handler) http.Handler, error) {
	if chance < 0 || chance > MaxGoawayChance {
		return nil, fmt.Errorf("goaway chance %g is not between 0 and %g", chance, MaxGoawayChance)
	}
	began := time.Now()
	var next atomic.Int64 // earliest time of the next GOAWAY, since began
	due := func() bool {
		if interval <= 0 {
			return true
		}
		now, at := time.Since(began), next.Load()
		return int64(now) >= at && next.CompareAndSwap(at, int64(now+interval))
	}
	return func(next http.Handler) http.Handler {
		if chance == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && rand.Float64() < chance && due() {
				w.Header().Set("Connection", "close")
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

var hstsDirective = regexp.MustCompile(`^(max-age=\d{1,10}|includeSubDomains|preload)$`)

// hstsFilter makes browsers use only TLS (RFC 6797).
func hstsFilter(directives []string) (func(http.Handler) http.Handler, error) {
	age := false
	for _, d := range directives {
		if !hstsDirective.MatchString(d) {
			return nil, fmt.Errorf("strict transport security directive %q is none of max-age=SECONDS, includeSubDomains, preload", d)
		}
		age = age || strings.HasPrefix(d, "max-age=")
	}
	if len(directives) > 0 && !age {
		return nil, fmt.Errorf("strict transport security needs max-age=SECONDS beside %s", strings.Join(directives, ", "))
	}
	value := strings.Join(directives, "; ")
	return func(next http.Handler) http.Handler {
		if value == "" {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Strict-Transport-Security", value)
			next.ServeHTTP(w, r)
		})
	}, nil
}

const (
	// maxDeniedUserAgents limits the number of expressions, all of which are matched against every request.
	// maxUserAgentPattern limits the length of each.
	maxDeniedUserAgents, maxUserAgentPattern = 64, 1024
	// maxMatched is the length of the part of a User-Agent that is matched. 64 expressions take a quarter of a second
	// for 60 KB.
	maxMatched = 1024
)

var healthPath = regexp.MustCompile(`^/(livez|readyz|healthz)(/|$)`)

// CompileUserAgents compiles the values of --deny-user-agents.
func CompileUserAgents(patterns []string) ([]*regexp.Regexp, error) {
	if len(patterns) > maxDeniedUserAgents {
		return nil, fmt.Errorf("%d expressions are more than %d; join some with |", len(patterns), maxDeniedUserAgents)
	}
	compiled := make([]*regexp.Regexp, len(patterns))
	for i, p := range patterns {
		if p == "" || len(p) > maxUserAgentPattern {
			return nil, fmt.Errorf("expression %.40q has %d bytes; it must have 1 to %d", p, len(p), maxUserAgentPattern)
		}
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression (RE2): %w", p, err)
		}
		compiled[i] = re
	}
	return compiled, nil
}

// userAgentFilter refuses clients with a User-Agent that the operator has denied, such as a controller that floods
// the cluster. It does not protect against malicious clients, which can send another User-Agent. Health endpoints are
// exempt.
func userAgentFilter(patterns []string, m *metrics.Requests) (func(http.Handler) http.Handler, error) {
	denied, err := CompileUserAgents(patterns)
	if err != nil {
		return nil, fmt.Errorf("denied user agents: %w", err)
	}
	return func(next http.Handler) http.Handler {
		if len(denied) == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			matches := func(agent string) bool {
				agent = agent[:min(len(agent), maxMatched)]
				return slices.ContainsFunc(denied, func(re *regexp.Regexp) bool { return re.MatchString(agent) })
			}
			if !healthPath.MatchString(r.URL.Path) && slices.ContainsFunc(r.Header["User-Agent"], matches) {
				m.Refused.WithLabelValues("user-agent").Inc()
				respond.Error(w, r, apierrors.NewForbidden(noResource, "",
					errors.New("the administrator of this server denies this client by its User-Agent (--deny-user-agents)")))
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
