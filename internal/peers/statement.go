package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/request"
)

// Header carries a Statement from one replica to another, in as many values as it needs. It is never sent to backends.
const Header = "X-Portico-Peer"

const (
	// statementLife is how long a statement may be used, and clockSkew how far the clocks of two replicas may be apart.
	statementLife = 10 * time.Second
	clockSkew     = time.Minute
	// audience is whom statements are for.
	audience = "portico-peers"
)

// Statement is what a replica says about a request that it hands to another one.
type Statement struct {
	jwt.RegisteredClaims
	// Method and Target are those of the request line. A statement holds for no other request.
	Method string `json:"method"`
	Target string `json:"target"`
	// AuditID is that of the request, at all replicas.
	AuditID string `json:"auditID,omitempty"`
	// Name, UID, Groups and Extra are the user.
	Name   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	// Client, Host and Scheme are where the request came from and to: backends are told.
	Client string `json:"client,omitempty"`
	Host   string `json:"host,omitempty"`
	Scheme string `json:"scheme,omitempty"`
}

// User is the user of the request.
func (s *Statement) User() user.Info {
	return &user.DefaultInfo{Name: s.Name, UID: s.UID, Groups: s.Groups, Extra: s.Extra}
}

// State returns the statement about a request that is about to be handed on, signed.
func (p *Peers) State(r *http.Request, u user.Info) (string, error) {
	now := p.now()
	s := Statement{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: p.config.Name, Audience: jwt.ClaimStrings{audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(statementLife)),
		},
		Method: r.Method, Target: targetOf(r), AuditID: request.AuditID(r.Context()),
		Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
		Host: r.Host, Scheme: "https",
	}
	if r.TLS == nil {
		s.Scheme = "http"
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		s.Client = host
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, &s).SignedString(p.key)
	if err != nil {
		return "", fmt.Errorf("sign the statement about a request: %w", err)
	}
	return text, nil
}

// targetOf is the target of the request line. Requests that are made inside have none.
func targetOf(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// Reasons why a request of another replica is refused.
var (
	ErrNoPeer      = errors.New("the client certificate is not that of a live replica")
	errNoStatement = errors.New("it has not one statement of who it is from")
	errOtherwise   = errors.New("its statement is about another request")
)

// IsReplica reports whether a connection for ServerName is another replica's. It decides how large headers may be.
func (p *Peers) IsReplica(s *tls.ConnectionState) bool {
	if s.ServerName != ServerName || len(s.PeerCertificates) == 0 {
		return false
	}
	_, ok := p.senderWith(fingerprint(s.PeerCertificates[0]))
	return ok
}

// Verify returns the statement about a request that came for ServerName. An error is a request that no replica has handed on that
// lives, or whose lease ended a few minutes ago.
func (p *Peers) Verify(r *http.Request) (*Statement, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, ErrNoPeer
	}
	certificate := r.TLS.PeerCertificates[0]
	sender, ok := p.senderWith(fingerprint(certificate))
	if !ok {
		return nil, ErrNoPeer
	}
	values := r.Header[Header]
	if len(values) == 0 {
		return nil, errNoStatement
	}
	s, err := p.parse(strings.Join(values, ""), certificate)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Issuer != sender, s.Method != r.Method, s.Target != targetOf(r):
		return nil, errOtherwise
	case s.Name == "":
		return nil, errNoStatement
	}
	return s, nil
}

func (p *Peers) parse(text string, sender *x509.Certificate) (*Statement, error) {
	key, ok := sender.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, ErrNoPeer
	}
	s := &Statement{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithAudience(audience), jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(), jwt.WithLeeway(clockSkew), jwt.WithTimeFunc(p.now),
	)
	if _, err := parser.ParseWithClaims(text, s, func(*jwt.Token) (any, error) { return key, nil }); err != nil {
		return nil, fmt.Errorf("its statement: %w", err)
	}
	return s, nil
}

type handedOn struct{}

// WithStatement marks the context of a request that another replica has handed on.
func WithStatement(ctx context.Context, s *Statement) context.Context {
	return context.WithValue(ctx, handedOn{}, s)
}

// StatementFrom returns the statement about a request that another replica has handed on.
func StatementFrom(ctx context.Context) (*Statement, bool) {
	s, ok := ctx.Value(handedOn{}).(*Statement)
	return s, ok
}
