package server

import (
	"crypto/tls"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/overload"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// HeaderMemory limits the memory of large request headers (httpmsg.LargeHeaders): before authentication for each
// network of clients, and afterwards for each user. No single network or user can use all of it.
type HeaderMemory struct {
	trusted              func(*tls.ConnectionState) bool
	unknownMax, usersMax int64
	unknown, users       transport.Shares
}

const (
	// maxUnknownHeaders and maxUserHeaders are the limits on machines with much memory. The minima admit a user with
	// thousands of groups.
	maxUnknownHeaders, minUnknownHeaders = 64 << 20, 8 << 20
	maxUserHeaders, minUserHeaders       = 256 << 20, 16 << 20
)

// NewHeaderMemory limits large headers to parts of the memory limit. Connections for which trusted returns true are
// not limited; they come from front proxies and other replicas.
func NewHeaderMemory(l overload.Limit, trusted func(*tls.ConnectionState) bool) *HeaderMemory {
	return &HeaderMemory{
		trusted:    trusted,
		unknownMax: max(l.Share(maxUnknownHeaders, 32), minUnknownHeaders), usersMax: max(l.Share(maxUserHeaders, 8), minUserHeaders),
	}
}

// Charged returns the bytes in use.
func (m *HeaderMemory) Charged() int64 { return m.unknown.Total() + m.users.Total() }

// Trusted implements httpmsg.LargeHeaders.
func (m *HeaderMemory) Trusted(s *tls.ConnectionState) bool {
	return len(s.PeerCertificates) > 0 && m.trusted != nil && m.trusted(s)
}

// Take implements httpmsg.LargeHeaders.
func (m *HeaderMemory) Take(client net.Addr, n int64) bool {
	ok, _ := m.unknown.Take(network(client).String(), n, m.unknownMax)
	return ok
}

// Give implements httpmsg.LargeHeaders.
func (m *HeaderMemory) Give(client net.Addr, n int64) { m.unknown.Give(network(client).String(), n) }

// takeForUser charges the n bytes of a header to a user instead of the network of its client. It returns false if the
// memory is used up.
func (m *HeaderMemory) takeForUser(g *httpmsg.HeaderGrant, n int64, u user.Info) bool {
	name := u.GetName()
	switch {
	case name == user.Anonymous: // remains charged to its network
		return true
	case overload.UserClassOf(u) != overload.Ordinary:
		g.Release()
		return true
	}
	if ok, _ := m.users.Take(name, n, m.usersMax); !ok {
		return false
	}
	g.Replace(n, func(n int64) { m.users.Give(name, n) })
	return true
}

// admit calls takeForUser. It also reports the class of the user to the connection of w, so that the next large
// headers on it do not count as a flood: without a memory limit, overloadFilter does not report it.
func (m *HeaderMemory) admit(w http.ResponseWriter, g *httpmsg.HeaderGrant, n int64, u user.Info) bool {
	if c := engineOf(w); c != nil && u.GetName() != user.Anonymous {
		c.Authenticated(overload.UserClassOf(u) != overload.Ordinary)
	}
	return m.takeForUser(g, n, u)
}

// headerMemoryFilter accounts for large headers by user. A nil HeaderMemory disables it.
func headerMemoryFilter(m *HeaderMemory) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if m == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := engineOf(w); c != nil {
				if grant, n := c.LargeHeader(); grant != nil && !m.admit(w, grant, n, recordFrom(r.Context()).User) {
					refusal := apierrors.NewServiceUnavailable("the large headers of other requests of this user are in memory, and there is no memory for this one; please send it again later")
					refusal.ErrStatus.Details = retryAfter(1)
					respond.Error(w, r, refusal)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}
