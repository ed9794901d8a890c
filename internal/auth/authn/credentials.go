package authn

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	asn1util "k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/pki"
	"portico.dev/internal/request"
)

// ErrNone is returned for a request without a credential. It alone may become anonymous.
var ErrNone = errors.New("no credential was presented")

// ErrInvalidToken is returned for a bearer token that no authenticator recognises.
var ErrInvalidToken = errors.New("invalid bearer token")

// The kinds of credential that an audit event tells apart (attack row E4).
const (
	KindFrontProxy  = "front proxy"
	KindCertificate = "client certificate"
	KindToken       = "bearer token"
)

// Authenticate verifies every credential of r and returns the first, in the documented order: front-proxied identity,
// client certificate, bearer token. On success the credentials are removed from r. The error is ErrNone when r has
// none, and otherwise why one of them is invalid.
//
// tokens may be nil: then no bearer token is valid.
func Authenticate(r *http.Request, trust *Trust, tokens authenticator.Token) (*authenticator.Response, error) {
	cert, err := trust.certificate(r)
	if err != nil {
		return nil, err
	}
	response, err := authenticateToken(r, tokens)
	if err != nil {
		return nil, err
	}
	kind := KindToken
	switch {
	case cert.user != nil:
		kind = cert.kind
		response = &authenticator.Response{User: cert.user}
	case response == nil && cert.any:
		return nil, errors.New("a front proxy's certificate names nobody by itself and no identity header came with it")
	case response == nil:
		return nil, ErrNone
	}
	request.NoteCredential(r.Context(), kind)
	stripToken(r.Header)
	trust.Headers().Strip(r)
	if isIn(response.User) {
		return response, nil
	}
	return &authenticator.Response{Audiences: response.Audiences, User: WithAuthenticated(response.User)}, nil
}

// authenticateToken returns nil, nil when r has no token.
func authenticateToken(r *http.Request, tokens authenticator.Token) (*authenticator.Response, error) {
	token, ok, err := Token(r)
	if err != nil || !ok {
		return nil, err
	}
	if tokens == nil {
		return nil, ErrInvalidToken
	}
	response, ok, err := tokens.AuthenticateToken(r.Context(), token)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrInvalidToken
	}
	return response, nil
}

// Anonymous is the identity of a request without a credential, where such requests are allowed.
func Anonymous() user.Info {
	return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
}

// WithAuthenticated is u in the group system:authenticated. A front proxy may state that the client is anonymous to it;
// such a user stays outside the group.
func WithAuthenticated(u user.Info) user.Info {
	if isIn(u) {
		return u
	}
	groups := u.GetGroups()
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(append(make([]string, 0, len(groups)+1), groups...), user.AllAuthenticated),
		Extra:  u.GetExtra(),
	}
}

// isIn reports whether u is in the groups that it belongs to by having been authenticated, or must not be.
func isIn(u user.Info) bool {
	groups := u.GetGroups()
	return u.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated)
}

// overlap is a certificate of clients that makes some client's certificate good for the front-proxy CA as well, or
// nil. Besides the certificates that both hold, it finds what amounts to the same: a key that both hold under other
// names, and an authority of one that was signed by the other, so that any of its clients can present the cross-signed
// certificate as an intermediate (attack row A12 d).
func overlap(clients, proxies []*x509.Certificate) *x509.Certificate {
	for _, c := range clients {
		for _, p := range proxies {
			// Signatures, not chains: an authority that has expired here may have a valid twin at the client.
			if bytes.Equal(c.RawSubjectPublicKeyInfo, p.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(p) == nil {
				return c
			}
		}
	}
	return nil
}

// Bounds of a client's chain. Verification is quadratic at worst, and name constraints make it worse (attack row B10:
// CVE-2025-58187, CVE-2025-61729); a real chain is a tenth of this.
const (
	maxChainBytes        = 16 << 10
	maxChainCertificates = 8
)

func checkChain(chain []*x509.Certificate) error {
	if len(chain) > maxChainCertificates {
		return fmt.Errorf("the client certificate chain has %d certificates; at most %d are looked at", len(chain), maxChainCertificates)
	}
	size := 0
	for _, c := range chain {
		size += len(c.Raw)
	}
	if size > maxChainBytes {
		return fmt.Errorf("the client certificate chain has %d bytes; at most %d are looked at", size, maxChainBytes)
	}
	return nil
}

// uidAttribute is the attribute of a subject that is the user's UID, kube-apiserver's.
var uidAttribute = asn1util.X509UID()

// certificateUID returns the UID that a leaf states, empty for none. One that can be read in two ways is refused.
func certificateUID(leaf *x509.Certificate) (string, error) {
	var uids []string
	for _, attribute := range leaf.Subject.Names {
		if !attribute.Type.Equal(uidAttribute) {
			continue
		}
		uid, ok := attribute.Value.(string)
		if !ok {
			return "", errors.New("unable to parse UID into a string")
		}
		uids = append(uids, uid)
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", uids)
	case uids[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return uids[0], nil
}

// certificateUser is the identity that a verified leaf states: its common name, in the groups of its organizations, with
// the UID that it has.
func certificateUser(leaf *x509.Certificate) (user.Info, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name, so it names nobody")
	}
	uid, err := certificateUID(leaf)
	if err != nil {
		return nil, fmt.Errorf("the client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	sum := sha256.Sum256(leaf.Raw)
	return &user.DefaultInfo{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: slices.Clone(leaf.Subject.Organization),
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}

// Trust is the authorities whose signatures count, and for what. The bundles may be replaced while in use; the rest is
// immutable.
type Trust struct {
	// Clients signs client certificates. Nil: certificates identify no user.
	Clients *pki.Bundle
	// FrontProxy signs front proxies, which may send identity headers. Nil: identity headers are never trusted.
	FrontProxy *FrontProxy

	lastOverlap atomic.Pointer[overlapCheck]
}

// FrontProxy is how to recognise a front proxy and how to read what it states.
type FrontProxy struct {
	// Bundle is the front-proxy CA.
	Bundle *pki.Bundle
	// AllowedNames are the common names that a front proxy's certificate may have. Empty: any, which is safe only while
	// the front-proxy CA signs nothing but front proxies.
	AllowedNames []string
	// Headers are the names under which it states an identity.
	Headers Headers
}

// overlapCheck is the result of Check for one pair of bundles.
type overlapCheck struct {
	clients, proxies *x509.CertPool
	shared           *x509.Certificate
}

// Check reports why the authorities must not be used together, or nil. It is called again for every request with
// identity headers, because a reload may bring together what was apart at start.
func (t *Trust) Check() error {
	shared := t.Shared()
	if shared == nil || len(t.FrontProxy.AllowedNames) > 0 {
		return nil
	}
	return fmt.Errorf("the client CA and the front-proxy CA overlap (%q) and no front proxy names are listed, so every client "+
		"certificate could assert any identity; use a front-proxy CA of its own, or list the proxies with --requestheader-allowed-names",
		shared.Subject)
}

// Shared is a certificate that makes the client CA and the front-proxy CA overlap, nil when they are apart.
func (t *Trust) Shared() *x509.Certificate {
	if t.Clients == nil || t.FrontProxy == nil {
		return nil
	}
	check := &overlapCheck{clients: t.Clients.Pool(), proxies: t.FrontProxy.Bundle.Pool()}
	if last := t.lastOverlap.Load(); last != nil && last.clients == check.clients && last.proxies == check.proxies {
		return last.shared
	}
	check.shared = overlap(t.Clients.Certificates(), t.FrontProxy.Bundle.Certificates())
	t.lastOverlap.Store(check)
	return check.shared
}

// Headers are the identity headers that are in use, none without a front proxy.
func (t *Trust) Headers() Headers {
	if t.FrontProxy == nil {
		return Headers{}
	}
	return t.FrontProxy.Headers
}

// certificateIdentity is the identity by the client certificate of a request.
type certificateIdentity struct {
	// user is nil when the certificate identifies no user: there is none, or it is a front proxy's without identity headers.
	user user.Info
	// any is whether a certificate was presented that we have an opinion about.
	any bool
	// kind is KindFrontProxy or KindCertificate.
	kind string
}

// certificate verifies the client certificate of r, and the identity headers if it is a front proxy's.
func (t *Trust) certificate(r *http.Request) (certificateIdentity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || (t.Clients == nil && t.FrontProxy == nil) {
		return certificateIdentity{}, nil
	}
	chain := r.TLS.PeerCertificates
	if err := checkChain(chain); err != nil {
		return certificateIdentity{}, err
	}
	isProxy, proxyErr := t.frontProxy(chain)
	if isProxy {
		if err := t.checkApart(chain); err != nil {
			return certificateIdentity{}, err
		}
		// A front proxy without identity headers has no identity, even where the client CA signed its certificate too (A31).
		request.NoteExpiry(r.Context(), chain[0].NotAfter)
		u, err := t.FrontProxy.Headers.identity(r.Header)
		return certificateIdentity{user: u, any: true, kind: KindFrontProxy}, err
	}
	if t.Clients == nil {
		return certificateIdentity{}, proxyErr
	}
	if err := t.Clients.VerifyClient(chain); err != nil {
		return certificateIdentity{}, errors.Join(err, proxyErr)
	}
	request.NoteExpiry(r.Context(), chain[0].NotAfter)
	u, err := certificateUser(chain[0])
	return certificateIdentity{user: u, any: true, kind: KindCertificate}, err
}

// IsFrontProxy reports whether a certificate chain is a front proxy's. It decides how large headers may be, and identifies no user.
func (t *Trust) IsFrontProxy(chain []*x509.Certificate) bool {
	if len(chain) == 0 || checkChain(chain) != nil {
		return false
	}
	isProxy, _ := t.frontProxy(chain)
	return isProxy && t.checkApart(chain) == nil
}

// checkApart refuses a front proxy whose certificate the client CA signed too, unless it is listed by name. Check sees
// what the bundles have in common; a cross-signature that is in neither bundle shows only in the chain that is
// presented.
func (t *Trust) checkApart(chain []*x509.Certificate) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.Clients == nil || len(t.FrontProxy.AllowedNames) > 0 || t.Clients.VerifyClient(chain) != nil {
		return nil
	}
	return errors.New("the client certificate is good for the client CA and for the front-proxy CA; list the front proxies by name")
}

// frontProxy reports whether chain is a front proxy's. The error is why not, and may be of interest to a person only
// if the chain turns out to be no client's either.
func (t *Trust) frontProxy(chain []*x509.Certificate) (bool, error) {
	if t.FrontProxy == nil {
		return false, nil
	}
	if err := t.FrontProxy.Bundle.VerifyClient(chain); err != nil {
		return false, fmt.Errorf("as a front proxy: %w", err)
	}
	name := chain[0].Subject.CommonName
	if names := t.FrontProxy.AllowedNames; len(names) > 0 && !slices.Contains(names, name) {
		return false, fmt.Errorf("as a front proxy: x509: subject with cn=%s is not in the allowed list", name)
	}
	return true, nil
}
