package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	oidclib "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// Config configures the trusted issuers, either by a file or by flags.
type Config struct {
	// File is an AuthenticationConfiguration, which Run reloads when it changes. If empty, Flags apply.
	File string
	// Flags configure one issuer. They and File are mutually exclusive.
	Flags Flags
	// Audiences are the API audiences of this server. A TokenReview for other audiences is not answered, because
	// tokens of OIDC issuers are issued to the issuer's clients and carry no API audience.
	Audiences []string
	// DisallowedIssuers are refused in the configuration, because another authenticator verifies their tokens: this
	// server's own issuer.
	DisallowedIssuers []string
	// AnonymousRefused is set if a flag disables anonymous requests, so that the file must not configure them.
	AnonymousRefused bool
	Metrics          *metrics.Auth
	Logger           *zap.Logger
}

// Issuers verifies the tokens of all configured issuers. The configuration may change while in use. Issuers is safe
// for concurrent use.
type Issuers struct {
	cfg      Config
	compiler func() authenticationcel.Compiler
	follow   *pki.WatchedFile[snapshot]
	last     snapshot // the previous configuration, used only by New and Run
}

// snapshot is a compiled version of the configuration.
type snapshot struct {
	issuers   map[string]*issuer
	anonymous *apiserver.AnonymousAuthConfig
}

// New reads the configuration. It does not send requests to issuers.
func New(cfg Config) (*Issuers, error) {
	if cfg.File != "" && cfg.Flags.IssuerURL != "" {
		return nil, errors.New("--authentication-config and --oidc-issuer-url exclude each other; move the issuer into the file")
	}
	if err := cfg.Flags.Validate(); err != nil {
		return nil, err
	}
	s := &Issuers{cfg: cfg, compiler: sync.OnceValue(authenticationcel.NewDefaultCompiler)}
	read := cmp.Or(cfg.File, cfg.Flags.CAFile)
	var err error
	s.follow, err = pki.OpenWatchedFile(read, func(string) (snapshot, error) { return s.load() })
	return s, err
}

func (s *Issuers) load() (snapshot, error) {
	configuration, algorithms, err := s.configuration()
	if err != nil {
		return snapshot{}, err
	}
	if configuration.Anonymous != nil && s.cfg.AnonymousRefused {
		return snapshot{}, fmt.Errorf("%s: anonymous: --anonymous-auth=false says so already; remove one of the two", s.origin())
	}
	if len(configuration.JWT) > 0 || configuration.Anonymous != nil {
		// Creating the compiler is slow, so it is skipped without a configuration.
		if err := check(s.compiler(), configuration, s.cfg.DisallowedIssuers); err != nil {
			return snapshot{}, fmt.Errorf("%s: %w", s.origin(), err)
		}
	}
	next := snapshot{issuers: make(map[string]*issuer, len(configuration.JWT)), anonymous: configuration.Anonymous}
	for _, jwt := range configuration.JWT {
		// An unchanged issuer keeps its keys and cache.
		if before := s.last.issuers[jwt.Issuer.URL]; before != nil && reflect.DeepEqual(before.config, jwt) {
			next.issuers[jwt.Issuer.URL] = before
			continue
		}
		i, err := newIssuer(jwt, algorithms, s.compiler(), s.cfg.Metrics, s.cfg.Logger)
		if err != nil {
			return snapshot{}, fmt.Errorf("issuer %s: %w", jwt.Issuer.URL, err)
		}
		next.issuers[jwt.Issuer.URL] = i
	}
	s.last = next
	return next, nil
}

// configuration returns the configuration and the accepted algorithms. A file has no field for algorithms; upstream
// accepts all asymmetric ones.
func (s *Issuers) configuration() (*apiserver.AuthenticationConfiguration, []string, error) {
	if s.cfg.File != "" {
		c, err := readConfiguration(s.cfg.File)
		return c, oidclib.AllValidSigningAlgorithms(), err
	}
	algorithms := s.cfg.Flags.SigningAlgs
	if len(algorithms) == 0 {
		algorithms = []string{"RS256"}
	}
	c, err := s.cfg.Flags.configuration()
	return c, algorithms, err
}

// origin describes the source of the configuration, for error messages.
func (s *Issuers) origin() string {
	if s.cfg.File == "" {
		return "--oidc flags"
	}
	return "authentication configuration " + s.cfg.File
}

// AuthenticateToken implements [authenticator.Token]. It returns false without an error for a token of an unknown
// issuer. It returns an error for a token of a configured issuer that is invalid, or that cannot be verified because
// the issuer's keys are unavailable.
func (s *Issuers) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	known := s.follow.Current().issuers
	if len(known) == 0 || len(token) > authn.MaxTokenBytes {
		return nil, false, nil
	}
	i, err := named(known, token)
	if i == nil {
		return nil, false, err
	}
	response := &authenticator.Response{}
	if wanted, ok := authenticator.AudiencesFrom(ctx); ok {
		if response.Audiences = authenticator.Audiences(s.cfg.Audiences).Intersect(wanted); len(response.Audiences) == 0 {
			return nil, false, nil
		}
	}
	if response.User, err = i.authenticate(ctx, token); err != nil {
		return nil, false, fmt.Errorf("token of %s: %w", i.config.Issuer.URL, err)
	}
	return response, true, nil
}

// named returns the configured issuer of a token, or nil.
func named(known map[string]*issuer, token string) (*issuer, error) {
	_, body, err := authn.SplitToken(token)
	if err != nil {
		return nil, nil
	}
	url, err := authn.TokenIssuer(body)
	switch {
	case errors.Is(err, authn.ErrMalformedToken):
		return nil, nil
	case err != nil:
		return nil, err
	case url == "accounts.google.com":
		url = "https://accounts.google.com" // Google uses both forms; upstream accepts this one too
	}
	return known[url], nil
}

// Anonymous returns the configuration of anonymous requests. said reports whether there is one. An empty paths means
// all paths.
func (s *Issuers) Anonymous() (said, enabled bool, paths []string) {
	a := s.follow.Current().anonymous
	if a == nil {
		return false, false, nil
	}
	for _, c := range a.Conditions {
		paths = append(paths, c.Path)
	}
	return true, a.Enabled, paths
}

// Stale returns why the configuration in use differs from the file, or nil. An unavailable issuer does not count: it
// must not make the server unready for users of the other issuers.
func (s *Issuers) Stale() error { return s.follow.Stale() }

// Run reloads the configuration when it changes and fetches the keys of its issuers, until ctx ends.
func (s *Issuers) Run(ctx context.Context) error {
	running := map[*issuer]context.CancelFunc{}
	var group sync.WaitGroup
	defer group.Wait()
	adjust := func() {
		wanted := map[*issuer]bool{}
		for _, i := range s.follow.Current().issuers {
			wanted[i] = true
			if running[i] == nil {
				ours, cancel := context.WithCancel(ctx)
				running[i] = cancel
				group.Go(func() { i.keys.run(ours) })
			}
		}
		for i, cancel := range running {
			if !wanted[i] {
				cancel()
				delete(running, i)
				s.cfg.Metrics.ForgetIssuer(i.config.Issuer.URL)
			}
		}
	}
	adjust()
	defer func() {
		for _, cancel := range running {
			cancel()
		}
	}()
	return s.follow.Run(ctx, s.cfg.Logger, func(err error) {
		s.cfg.Metrics.ConfigReloaded(err == nil)
		if err == nil {
			adjust()
		}
	})
}
