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

// ErrNone is returned for a request without a credential. Only such a request may become anonymous.
var ErrNone = errors.New("no credential was presented")

// ErrInvalidToken is returned for a bearer token that no authenticator recognizes.
var ErrInvalidToken = errors.New("invalid bearer token")

// Credential kinds recorded in audit events (attack row E4).
const (
	KindFrontProxy  = "front proxy"
	KindCertificate = "client certificate"
	KindToken       = "bearer token"
)

// Authenticate verifies every credential of r and returns the identity of the first in this order: front-proxied
// identity, client certificate, bearer token. On success the credentials are removed from r. The error is ErrNone if
// r has no credential; any other error means that one of them is invalid.
//
// If tokens is nil, no bearer token is valid.
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

// Anonymous returns the identity of a request without a credential, where such requests are allowed.
func Anonymous() user.Info {
	return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
}

// WithAuthenticated returns u as a member of the group system:authenticated. Users that a front proxy asserts to be
// anonymous are returned unchanged.
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

// isIn reports whether u is already a member of system:authenticated, or must not be.
func isIn(u user.Info) bool {
	groups := u.GetGroups()
	return u.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated)
}

// overlap returns a client CA certificate that makes some client certificates valid for the front-proxy CA too, or
// nil. It finds certificates in both bundles, the same key under different names, and a client CA cross-signed by a
// front-proxy CA, whose clients could present the cross-signed certificate as an intermediate (attack row A12 d).
func overlap(clients, proxies []*x509.Certificate) *x509.Certificate {
	for _, c := range clients {
		for _, p := range proxies {
			// Compare signatures, not chains: a client may hold a valid certificate for the key of an authority that
			// has expired here.
			if bytes.Equal(c.RawSubjectPublicKeyInfo, p.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(p) == nil {
				return c
			}
		}
	}
	return nil
}

// Limits of a client's certificate chain. Verification is quadratic in the worst case, and name constraints add to
// the cost (attack row B10: CVE-2025-58187, CVE-2025-61729). Real chains are a tenth of this size.
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

// uidAttribute is the subject attribute that contains the user's UID, as in kube-apiserver.
var uidAttribute = asn1util.X509UID()

// certificateUID returns the UID in a leaf certificate, or "" if it has none. An ambiguous UID is an error.
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

// certificateUser returns the identity in a verified leaf certificate: the common name, the organizations as groups,
// and the UID.
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

// Trust holds the authorities for client and front-proxy certificates. The contents of the bundles may change while
// in use; the rest is immutable.
type Trust struct {
	// Clients signs client certificates. If nil, certificates do not identify users.
	Clients *pki.Bundle
	// FrontProxy describes front proxies, which may send identity headers. If nil, identity headers are never
	// trusted.
	FrontProxy *FrontProxy

	lastOverlap atomic.Pointer[overlapCheck]
}

// FrontProxy describes how to recognize a front proxy and which headers it sends.
type FrontProxy struct {
	// Bundle is the front-proxy CA.
	Bundle *pki.Bundle
	// AllowedNames are the accepted common names of a front proxy's certificate. Empty accepts any name, which is
	// safe only while the front-proxy CA signs nothing but front proxies.
	AllowedNames []string
	// Headers are the identity headers that the proxy sends.
	Headers Headers
}

// overlapCheck caches the result of Shared for a pair of bundles.
type overlapCheck struct {
	clients, proxies *x509.CertPool
	shared           *x509.Certificate
}

// Check returns an error if the two authorities must not be used together. It is called again for each request from a
// front proxy, because a reload may make the authorities overlap.
func (t *Trust) Check() error {
	shared := t.Shared()
	if shared == nil || len(t.FrontProxy.AllowedNames) > 0 {
		return nil
	}
	return fmt.Errorf("the client CA and the front-proxy CA overlap (%q) and no front proxy names are listed, so every client "+
		"certificate could assert any identity; use a front-proxy CA of its own, or list the proxies with --requestheader-allowed-names",
		shared.Subject)
}

// Shared returns a certificate that makes the client CA and the front-proxy CA overlap, or nil.
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

// Headers returns the identity headers in use. It is empty without a front proxy.
func (t *Trust) Headers() Headers {
	if t.FrontProxy == nil {
		return Headers{}
	}
	return t.FrontProxy.Headers
}

// certificateIdentity is the result of authenticating a request by its client certificate.
type certificateIdentity struct {
	// nil if there is no certificate, or a front proxy's certificate without identity headers
	user user.Info
	// any reports whether a certificate was presented and verified.
	any bool
	// KindFrontProxy or KindCertificate
	kind string
}

// certificate verifies the client certificate of r, and reads the identity headers if the certificate is a front
// proxy's.
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
		// A front proxy without identity headers has no identity, even if the client CA signed its certificate too
		// (A31).
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

// IsFrontProxy reports whether a certificate chain belongs to a front proxy. It determines the header size limit and
// does not identify a user.
func (t *Trust) IsFrontProxy(chain []*x509.Certificate) bool {
	if len(chain) == 0 || checkChain(chain) != nil {
		return false
	}
	isProxy, _ := t.frontProxy(chain)
	return isProxy && t.checkApart(chain) == nil
}

// checkApart refuses a front proxy whose certificate is also valid for the client CA, unless front proxies are listed
// by name. Check compares the bundles; a cross-signature that is in neither bundle is visible only in the presented
// chain.
func (t *Trust) checkApart(chain []*x509.Certificate) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.Clients == nil || len(t.FrontProxy.AllowedNames) > 0 || t.Clients.VerifyClient(chain) != nil {
		return nil
	}
	return errors.New("the client certificate is good for the client CA and for the front-proxy CA; list the front proxies by name")
}

// frontProxy reports whether chain belongs to a front proxy. The error explains why not, and matters only if the
// chain is not a client's either.
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
