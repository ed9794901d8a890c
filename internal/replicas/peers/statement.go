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

// Header carries a Statement from one replica to another, in as many values as necessary. It is never sent to
// backends.
const Header = "X-Portico-Peer"

const (
	// statementLife is how long a statement is valid, and clockSkew the tolerated difference of two replicas' clocks.
	statementLife = 10 * time.Second
	clockSkew     = time.Minute
	// audience is the audience of statements.
	audience = "portico-peers"
)

// Statement describes a request that a replica forwards to another one.
type Statement struct {
	jwt.RegisteredClaims
	// Method and Target are copied from the request line. The statement is valid only for them.
	Method string `json:"method"`
	Target string `json:"target"`
	// AuditID is the audit ID of the request, at all replicas.
	AuditID string `json:"auditID,omitempty"`
	// Name, UID, Groups and Extra identify the user.
	Name   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	// Client, Host and Scheme describe where the request came from and which URL it had. Backends receive them.
	Client string `json:"client,omitempty"`
	Host   string `json:"host,omitempty"`
	Scheme string `json:"scheme,omitempty"`
}

// User returns the user of the request.
func (s *Statement) User() user.Info {
	return &user.DefaultInfo{Name: s.Name, UID: s.UID, Groups: s.Groups, Extra: s.Extra}
}

// State returns the signed statement about a request that is about to be forwarded.
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

// targetOf returns the target of the request line. Internal requests do not have one, so it is derived from the URL.
func targetOf(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// Reasons to refuse a request of another replica.
var (
	ErrNoPeer      = errors.New("the client certificate is not that of a live replica")
	errNoStatement = errors.New("it has not one statement of who it is from")
	errOtherwise   = errors.New("its statement is about another request")
)

// IsReplica reports whether a connection for ServerName is from another replica. The result decides how large headers
// may be.
func (p *Peers) IsReplica(s *tls.ConnectionState) bool {
	if s.ServerName != ServerName || len(s.PeerCertificates) == 0 {
		return false
	}
	_, ok := p.senderWith(fingerprint(s.PeerCertificates[0]))
	return ok
}

// Verify returns the statement about a request for ServerName. It returns an error unless the request comes from a
// replica that is live or has departed recently, and the statement describes the request.
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

// WithStatement marks the context of a request that another replica has forwarded.
func WithStatement(ctx context.Context, s *Statement) context.Context {
	return context.WithValue(ctx, handedOn{}, s)
}

// StatementFrom returns the statement about a request that another replica has forwarded.
func StatementFrom(ctx context.Context) (*Statement, bool) {
	s, ok := ctx.Value(handedOn{}).(*Statement)
	return s, ok
}
