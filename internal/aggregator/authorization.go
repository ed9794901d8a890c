package aggregator

import (
	"github.com/spf13/pflag"

	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/rbac"
)

func defaultAuthorization() authz.Config {
	return authz.Config{
		WebhookVersion: authz.DefaultWebhookVersion,
		AuthorizedTTL:  authz.DefaultAuthorizedTTL, UnauthorizedTTL: authz.DefaultUnauthorizedTTL,
	}
}

func (c *Config) addAuthorizationFlags(fs *pflag.FlagSet) {
	a := &c.Authorization
	fs.StringSliceVar(&a.Modes, "authorization-mode", a.Modes, "authorizers, in order: AlwaysAllow, AlwaysDeny, RBAC, Webhook; default RBAC")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile, "kubeconfig of a webhook that authorizes by SubjectAccessReview, for the mode Webhook")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "version of SubjectAccessReview that the webhook uses: v1 or v1beta1")
	fs.DurationVar(&a.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.AuthorizedTTL, "how long the webhook's allowed responses are cached; 0 disables the cache")
	fs.DurationVar(&a.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.UnauthorizedTTL, "how long the webhook's other responses are cached; 0 disables the cache")
	fs.StringVar(&a.File, "authorization-config", a.File, "AuthorizationConfiguration of apiserver.config.k8s.io: authorizers, in order, instead of the flags --authorization-mode and --authorization-webhook-*; reloaded when it changes")
}

// wireAuthorization is everything that answers may they.
func (h *parts) wireAuthorization() (err error) {
	h.rbac = rbac.New(h.log.Named("rbac"))
	c := h.cfg.Authorization
	c.RBAC, c.Metrics, c.Logger = h.rbac, h.metrics.Authorization, h.log.Named("authorization")
	if h.authz, err = authz.New(c); err != nil {
		return err
	}
	h.metrics.Auth.Trust("authorization-config", h.authz.Stale)
	return nil
}
