package aggregator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/bootstraptoken"
	"portico.dev/internal/auth/nodes"
	"portico.dev/internal/auth/oidc"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/auth/tokenwebhook"
	"portico.dev/internal/logging"
	"portico.dev/internal/pki"
)

// AuthenticationConfig configures tokens of issuers and of a webhook, in addition to static and service account
// tokens.
type AuthenticationConfig struct {
	// ConfigFile is an AuthenticationConfiguration: issuers, and where anonymous requests are allowed. It is reloaded
	// when it changes. Default none.
	ConfigFile string
	// OIDC is one issuer, configured by flags. It excludes ConfigFile.
	OIDC oidc.Flags
	// Webhook* configure a server that authenticates tokens that no other authenticator accepts. Default none.
	WebhookConfigFile string
	WebhookVersion    string
	WebhookCacheTTL   time.Duration
	// BootstrapTokens accepts the tokens in Secrets of type bootstrap.kubernetes.io/token in kube-system. Default
	// false.
	BootstrapTokens bool
	// ExtendTokens makes tokens that kubelets request valid for a year, and counts uses after the requested lifetime.
	// Default true.
	ExtendTokens bool
	// MaxTokenExpiration is the maximum lifetime of service account tokens, at least an hour. Default 0: 2^32
	// seconds, the maximum that can be requested. Tokens that ExtendTokens applies to may live longer.
	MaxTokenExpiration time.Duration
}

func defaultAuthentication() AuthenticationConfig {
	return AuthenticationConfig{
		OIDC:           oidc.Flags{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
		WebhookVersion: "v1beta1", WebhookCacheTTL: 2 * time.Minute, ExtendTokens: true,
	}
}

func (a *AuthenticationConfig) addFlags(fs *pflag.FlagSet) {
	o := &a.OIDC
	fs.StringVar(&a.ConfigFile, "authentication-config", a.ConfigFile, "AuthenticationConfiguration of apiserver.config.k8s.io: OpenID Connect issuers, and conditions for anonymous requests; reloaded when it changes")
	fs.StringVar(&o.IssuerURL, "oidc-issuer-url", o.IssuerURL, "URL of the OpenID Connect issuer; https only")
	fs.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "audience that OpenID Connect tokens must have")
	fs.StringVar(&o.CAFile, "oidc-ca-file", o.CAFile, "CA certificates of the issuer's server; default the system's")
	fs.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim that holds the user name")
	fs.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix, `prefix of user names; "-" is no prefix; default the issuer's URL and #, unless the claim is email`)
	fs.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "claim that holds the groups; default none")
	fs.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "prefix of group names")
	fs.StringToStringVar(&o.RequiredClaims, "oidc-required-claim", o.RequiredClaims, "claim=value that a token must have; may be repeated")
	fs.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "signing algorithms that are accepted")
	fs.StringVar(&a.WebhookConfigFile, "authentication-token-webhook-config-file", a.WebhookConfigFile, "kubeconfig of a webhook that authenticates bearer tokens by TokenReview, after all other authenticators")
	fs.StringVar(&a.WebhookVersion, "authentication-token-webhook-version", a.WebhookVersion, "version of TokenReview that the webhook uses: v1 or v1beta1")
	fs.DurationVar(&a.WebhookCacheTTL, "authentication-token-webhook-cache-ttl", a.WebhookCacheTTL, "how long successful responses of the webhook are cached")
	fs.BoolVar(&a.BootstrapTokens, "enable-bootstrap-token-auth", a.BootstrapTokens, "accept bootstrap tokens, which are Secrets of type bootstrap.kubernetes.io/token in the namespace kube-system")
	fs.BoolVar(&a.ExtendTokens, "service-account-extend-token-expiration", a.ExtendTokens, "issue tokens that kubelets request with a lifetime of one year, and count their use after the requested lifetime")
	fs.DurationVar(&a.MaxTokenExpiration, "service-account-max-token-expiration", a.MaxTokenExpiration, "maximum lifetime of service account tokens; a longer requested lifetime is reduced to it, with a Warning. Tokens that kubelets request can be valid for a year with --service-account-extend-token-expiration")
}

func (a *AuthenticationConfig) validate() error {
	err := a.OIDC.Validate()
	if a.ConfigFile != "" && a.OIDC.IssuerURL != "" {
		err = errors.Join(err, errors.New("--authentication-config: excludes --oidc-issuer-url; move the issuer into the file"))
	}
	if a.WebhookVersion != "v1" && a.WebhookVersion != "v1beta1" {
		err = errors.Join(err, fmt.Errorf("--authentication-token-webhook-version: %q is neither v1 nor v1beta1", a.WebhookVersion))
	}
	if a.WebhookCacheTTL < 0 {
		err = errors.Join(err, fmt.Errorf("--authentication-token-webhook-cache-ttl: %s is negative", a.WebhookCacheTTL))
	}
	if most := a.MaxTokenExpiration; most != 0 && (most < time.Hour || most > longestToken) {
		err = errors.Join(err, errors.New("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"))
	}
	return err
}

// longestToken is the longest lifetime that a TokenRequest may request.
const longestToken = serviceaccount.MaxExpirationSeconds * time.Second

// warnOfExtendedTokens logs kube-apiserver's warnings about settings that conflict with
// --service-account-max-token-expiration.
func (a *AuthenticationConfig) warnOfExtendedTokens(log *zap.Logger) {
	if !a.ExtendTokens || a.MaxTokenExpiration == 0 {
		return
	}
	if a.MaxTokenExpiration < serviceaccount.KubeletExpirationSeconds*time.Second {
		log.Warn(fmt.Sprintf("service-account-extend-token-expiration is true, in order to correctly trigger safe transition logic, "+
			"service-account-max-token-expiration must be set longer than %d seconds (currently %s)", serviceaccount.KubeletExpirationSeconds, a.MaxTokenExpiration))
	}
	if a.MaxTokenExpiration < serviceaccount.ExtendedSeconds*time.Second {
		log.Warn(fmt.Sprintf("service-account-extend-token-expiration is true, enabling tokens valid up to %d seconds, "+
			"which is longer than service-account-max-token-expiration set to %s", serviceaccount.ExtendedSeconds, a.MaxTokenExpiration))
	}
}

// checkPrivateKeys refuses key files of the operator that other users can read. It does not check the keys in
// DataDir.
func (c *Config) checkPrivateKeys() error {
	var errs []error
	type keyFile struct{ flag, file string }
	keys := []keyFile{
		{"tls-private-key-file", c.TLSPrivateKeyFile},
		{"proxy-client-key-file", c.ProxyClientKeyFile},
		{"etcd-keyfile", c.EtcdKeyFile},
		{"kubelet-client-key", c.Kubelet.ClientKey},
	}
	for _, p := range c.Signing.pairs() {
		keys = append(keys, keyFile{p.flag + "-key-file", p.files.Key})
	}
	for _, key := range keys {
		if key.file == "" {
			continue
		}
		if err := pki.CheckPrivate(key.file); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", key.flag, err))
		}
	}
	return errors.Join(errs...)
}

// wireAuthentication builds the authenticators of requests.
func (h *parts) wireAuthentication() (err error) {
	c := h.cfg
	c.Authentication.warnOfExtendedTokens(h.log.Named("authentication"))
	h.tokenLookup = &tokenLookup{}
	h.tokens, err = serviceaccount.New(serviceaccount.Config{
		Issuer: h.issuer, Audiences: c.APIAudiences, ExtendExpiration: c.Authentication.ExtendTokens,
		Now:            h.clock.now,
		SigningKeyFile: h.signingKey, VerifyKeyFiles: c.ServiceAccountKeyFiles, Lookup: h.tokenLookup,
		Metrics: h.Metrics.Auth.ServiceAccounts,
		Used:    func(s *corev1.Secret) { h.controllers.TokenUsed(s) },
	})
	if err != nil {
		return err
	}
	others, err := h.wireOtherTokens()
	if err != nil {
		return err
	}
	h.authn, err = authn.New(authn.Config{
		ClientCA: h.clientCA, TokenFile: c.TokenAuthFile, ServiceAccounts: h.tokens, Tokens: others,
		Requests:  c.Embedded.Requests,
		Anonymous: c.AnonymousAuth, AnonymousRule: h.issuers.Anonymous,
		RequestHeader: &authn.RequestHeaderConfig{
			ClientCA: h.frontProxy, AllowedNames: c.RequestHeaderAllowedNames,
			UsernameHeaders: c.RequestHeaderUsernameHeaders, UIDHeaders: c.RequestHeaderUIDHeaders,
			GroupHeaders: c.RequestHeaderGroupHeaders, ExtraHeaderPrefixes: c.RequestHeaderExtraHeaderPrefixes,
		},
		Metrics: h.Metrics.Auth, Logger: h.log.Named("authentication"),
	})
	if err != nil {
		return err
	}
	h.registerTrustMetrics()
	return nil
}

// wireOtherTokens returns the authenticators of tokens that Portico does not issue, in order. The webhook is last,
// because it receives every token that the other authenticators do not accept.
func (h *parts) wireOtherTokens() (others []authenticator.Token, err error) {
	a := h.cfg.Authentication
	h.issuers, err = oidc.New(oidc.Config{
		File: a.ConfigFile, Flags: a.OIDC, Audiences: h.tokens.Audiences(), DisallowedIssuers: []string{h.issuer},
		AnonymousRefused: !h.cfg.AnonymousAuth, Metrics: h.Metrics.Auth, Logger: h.log.Named("oidc"),
	})
	if err != nil {
		return nil, err
	}
	if a.BootstrapTokens {
		others = append(others, h.bootstrapTokens())
	}
	others = append(others, h.issuers)
	others = append(others, h.cfg.Embedded.Tokens...)
	if a.WebhookConfigFile == "" {
		return others, nil
	}
	h.webhook, err = tokenwebhook.New(tokenwebhook.Config{
		File: a.WebhookConfigFile, Version: a.WebhookVersion, CacheTTL: a.WebhookCacheTTL,
		Audiences: h.tokens.Audiences(), Dial: h.Egress.ControlPlane().NetDialer(), Metrics: h.Metrics.Auth,
	})
	return append(others, h.webhook), err
}

// bootstrapTokens reads Secrets from the informer cache, because any client can send invalid tokens.
func (h *parts) bootstrapTokens() authenticator.Token {
	return authenticator.WrapAudienceAgnosticToken(h.tokens.Audiences(), &bootstraptoken.Authenticator{
		Secret: func(name string) (*corev1.Secret, error) {
			return h.informers.Secrets().Lister().Secrets(metav1.NamespaceSystem).Get(name)
		},
		Now: h.clock.now, Logger: logging.Limited(h.log.Named("authentication")),
	})
}

// registerTrustMetrics exports which files are stale, as /readyz does.
func (h *parts) registerTrustMetrics() {
	for file, stale := range map[string]func() error{
		"client-ca-file": h.clientCA.Stale, "requestheader-client-ca-file": h.frontProxy.Stale,
		"tls-cert-file": h.servingCert.Stale, "proxy-client-cert-file": h.proxyClientCert.Stale,
		"authentication": h.authn.Stale, "authentication-config": h.issuers.Stale, "pki": h.keys.Stale,
	} {
		h.Metrics.Auth.Trust(file, stale)
	}
}

// watchAuthentication reloads the files that authentication depends on, and the keys of issuers.
func (h *parts) watchAuthentication(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.authn.Run(ctx) })
	g.Go(func() error { return h.issuers.Run(ctx) })
	if h.webhook != nil {
		g.Go(func() error { return h.webhook.Run(ctx) })
	}
	return g.Wait()
}

func defaultAuthorization() authz.Config {
	return authz.Config{
		WebhookVersion: authz.DefaultWebhookVersion,
		AuthorizedTTL:  authz.DefaultAuthorizedTTL, UnauthorizedTTL: authz.DefaultUnauthorizedTTL,
	}
}

func (c *Config) addAuthorizationFlags(fs *pflag.FlagSet) {
	a := &c.Authorization
	fs.StringSliceVar(&a.Modes, "authorization-mode", a.Modes, "authorizers, in order: AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook; default RBAC")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile, "kubeconfig of a webhook that authorizes by SubjectAccessReview, for the mode Webhook")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "version of SubjectAccessReview that the webhook uses: v1 or v1beta1")
	fs.DurationVar(&a.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.AuthorizedTTL, "how long the webhook's allowed responses are cached; 0 disables the cache")
	fs.DurationVar(&a.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.UnauthorizedTTL, "how long the webhook's other responses are cached; 0 disables the cache")
	fs.StringVar(&a.File, "authorization-config", a.File, "AuthorizationConfiguration of apiserver.config.k8s.io: authorizers, in order, instead of the flags --authorization-mode and --authorization-webhook-*; reloaded when it changes")
}

// wireAuthorization builds the authorizers.
func (h *parts) wireAuthorization() (err error) {
	h.rbac = rbac.New(h.log.Named("rbac"))
	c := h.cfg.Authorization
	c.First, c.Dial = h.cfg.Embedded.Authorizers, h.Egress.ControlPlane().NetDialer()
	h.nodes = nodes.New()
	c.RBAC, c.Node, c.Metrics, c.Logger = h.rbac, h.nodes, h.Metrics.Authorization, h.log.Named("authorization")
	if h.authz, err = authz.New(c); err != nil {
		return err
	}
	h.Metrics.Auth.Trust("authorization-config", h.authz.Stale)
	return nil
}

// nodeKinds are the kinds with objects that belong to nodes.
var nodeKinds = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("pods"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
	storagev1.SchemeGroupVersion.WithResource("volumeattachments"),
	resourcev1.SchemeGroupVersion.WithResource("resourceslices"),
	certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"),
}

// runNodeAuthorizer follows the objects that belong to nodes. It starts informers only for the kinds that are served
// here, because the informer of any other kind never completes its first list. The served kinds are known only now,
// so these informers start after all others.
func (h *parts) runNodeAuthorizer(ctx context.Context) error {
	var follow []cache.SharedIndexInformer
	for _, kind := range nodeKinds {
		if at, served := h.servedHere(kind.GroupResource()); !served || at != kind {
			continue
		}
		informer, err := h.informers.ForResource(kind)
		if err != nil {
			return fmt.Errorf("node authorizer: %w", err)
		}
		follow = append(follow, informer.Informer())
	}
	h.informers.Start(ctx.Done())
	return h.nodes.Run(ctx, follow...)
}
