package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
	"portico.dev/internal/respond"
	"portico.dev/internal/store"
)

// Etcd is the embedded etcd of this member. store.Store implements it.
type Etcd interface {
	Members(ctx context.Context) ([]store.Member, error)
	RemoveMember(ctx context.Context, which string) error
	PromoteMember(ctx context.Context, which string) error
	AddLearner(ctx context.Context, name, address string) (map[string][]string, error)
}

// ServerConfig contains the dependencies of a Server. All fields are required.
type ServerConfig struct {
	// Authority returns the authority that signs server certificates now.
	Authority func() *pki.Authority
	Tokens    *Tokens
	Etcd      Etcd
	// Address is the address at which other members of etcd reach this one.
	Address string
	// Versions returns the versions of the cluster, and HandOver the keys and settings for a joining front door.
	Versions func() Versions
	HandOver func() (HandOver, error)
	Logger   *zap.Logger
}

// Server serves front doors that join the cluster.
type Server struct {
	config ServerConfig
	limit  *addressLimit
	log    *zap.Logger // for requests without a token
	places chan struct{}
	now    func() time.Time

	mu     sync.Mutex // guards pair and signer
	pair   *pki.KeyPair
	signer *pki.Authority
}

// NewServer returns a Server.
func NewServer(c ServerConfig) *Server {
	return &Server{config: c, limit: newAddressLimit(), log: logging.Limited(c.Logger), places: make(chan struct{}, answeredAtOnce), now: time.Now}
}

// Certificate returns a function that selects the certificate of a handshake. It returns the certificate for
// ServerName if the client requests that name, and otherwise the result of others.
func (s *Server) Certificate(others func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName != ServerName {
			return others(hello)
		}
		pair, err := s.certificate()
		if err != nil {
			return nil, err
		}
		return pair.GetCertificate(hello)
	}
}

// certificate issues a certificate at the first handshake, after two thirds of its lifetime, and when another
// authority signs. The CA's certificate is appended to it.
func (s *Server) certificate() (*pki.KeyPair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	authority := s.config.Authority()
	if s.pair != nil && s.signer.Certificate.Equal(authority.Certificate) && s.now().Before(renewal(s.pair.Leaf())) {
		return s.pair, nil
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: ServerName, DNSNames: []string{ServerName}, Server: true})
	if err != nil {
		return nil, err
	}
	s.pair, err = pki.StaticKeyPair(append(certPEM, authority.PEM()...), keyPEM)
	s.signer = authority
	return s.pair, err
}

func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// ServeHTTP serves requests for ServerName.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	w.Header().Set("Cache-Control", "no-store")
	if !s.limit.allow(address, s.now()) {
		s.refuse(w, r, apierrors.NewTooManyRequests("too many requests to join from this address", 2))
		return
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		s.refuse(w, r, apierrors.NewTooManyRequests("too many requests to join", 2))
		return
	}
	answer, err := s.answer(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	respond.JSON(w, http.StatusOK, answer)
}

// refuse responds with an error, and logs it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	s.log.Warn("rejected a request to join the cluster", zap.String("remote", r.RemoteAddr), zap.Error(err))
	respond.Error(w, r, err)
}

// answer returns the response to a request.
func (s *Server) answer(r *http.Request) (any, error) {
	var serve func(*http.Request, Token, []byte) (any, error)
	switch r.URL.Path {
	case keysPath:
		serve = s.keys
	case membersPath:
		serve = s.member
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, noResource, "", "", 0, false)
	}
	if r.Method != http.MethodPost {
		return nil, apierrors.NewMethodNotSupported(noResource, r.Method)
	}
	token, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	case len(body) > maxRequest:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a request to join has at most %d bytes", maxRequest))
	}
	return serve(r, token, body)
}

// authenticate returns the token of a request.
func (s *Server) authenticate(r *http.Request) (Token, error) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return Token{}, apierrors.NewUnauthorized("a join token is needed")
	}
	credential, ok := strings.CutPrefix(values[0], "Bearer ")
	id, secret, both := strings.Cut(credential, ".")
	if !ok || !both {
		return Token{}, apierrors.NewUnauthorized(ErrToken.Error())
	}
	switch err := s.config.Tokens.Check(r.Context(), id, secret); {
	case errors.Is(err, ErrToken):
		return Token{}, apierrors.NewUnauthorized(err.Error())
	case err != nil:
		return Token{}, unavailable(err)
	}
	return Token{CAHash: pki.SPKIHash(s.config.Authority().Certificate), ID: id, Secret: secret}, nil
}

func (s *Server) keys(r *http.Request, token Token, body []byte) (any, error) {
	var request keysRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if len(request.Nonce) != nonceLength {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the nonce has %d bytes, and needs %d", len(request.Nonce), nonceLength))
	}
	if err := s.config.Versions().check(request.Versions); err != nil {
		return nil, conflict(err)
	}
	handOver, err := s.config.HandOver()
	if err != nil {
		return nil, unavailable(err)
	}
	sealed, err := seal(token, request.Nonce, handOver)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	s.config.Logger.Info("sent the cluster keys to a joining replica", zap.String("token", token.ID), zap.String("remote", r.RemoteAddr))
	return keysAnswer{Sealed: sealed}, nil
}

func (s *Server) member(r *http.Request, token Token, body []byte) (any, error) {
	var request memberRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if err := request.check(); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := s.config.Versions().check(request.Versions); err != nil {
		return nil, conflict(err)
	}
	if isLoopback(request.Address) != isLoopback(s.config.Address) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the member that joins says that it is reached at %s, and the member here is reached at %s: both must be addresses that reach from one machine to the other; see --bind-address and --peer-advertise-ip", request.Address, s.config.Address))
	}
	members, err := s.config.Etcd.AddLearner(r.Context(), request.Name, request.Address)
	if err != nil {
		return nil, etcdError(err)
	}
	s.config.Logger.Info("added a member to etcd", zap.String("name", request.Name), zap.String("address", request.Address),
		zap.String("token", token.ID), zap.String("remote", r.RemoteAddr))
	return memberAnswer{Members: members}, nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && net.ParseIP(host).IsLoopback()
}

// etcdError returns the response to an error of Etcd.
func etcdError(err error) error {
	switch {
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrNotReady), errors.Is(err, context.DeadlineExceeded):
		return unavailable(err)
	case errors.As(err, new(*store.QuorumError)):
		return unavailable(err)
	case errors.Is(err, store.ErrNoMember), errors.Is(err, store.ErrSingle):
		return notFound(err)
	}
	return conflict(err)
}

func unavailable(err error) error {
	s := apierrors.NewServiceUnavailable(err.Error())
	s.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return s
}

func conflict(err error) error {
	s := apierrors.NewBadRequest(err.Error())
	s.ErrStatus.Code, s.ErrStatus.Reason = http.StatusConflict, metav1.StatusReasonConflict
	return s
}

func notFound(err error) error {
	s := apierrors.NewBadRequest(err.Error())
	s.ErrStatus.Code, s.ErrStatus.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
	return s
}
