package authz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/metrics"
)

// Authorizer modes, as spelled in --authorization-mode and AuthorizationConfiguration.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeWebhook     = "Webhook"
)

var modes = []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeNode, ModeRBAC, ModeWebhook}

// unsupportedModes maps kube-apiserver's modes that are not supported to the recommended alternative.
var unsupportedModes = map[string]string{
	"ABAC": "write the policy as RBAC roles and bindings, or serve it with a webhook",
}

// Flag defaults, as in kube-apiserver.
const (
	DefaultAuthorizedTTL   = 5 * time.Minute
	DefaultUnauthorizedTTL = 30 * time.Second
	DefaultWebhookVersion  = "v1beta1"
	// flagWebhookTimeout is the deadline of a webhook configured by flags. A configuration file sets its own
	// deadline.
	flagWebhookTimeout = 30 * time.Second
)

// Config selects the authorizers, either by File or by the other settings.
type Config struct {
	// Modes are the authorizers in order. Default RBAC.
	Modes []string
	// WebhookConfigFile is the kubeconfig of the webhook of mode Webhook.
	WebhookConfigFile string
	// WebhookVersion is the version of SubjectAccessReview, v1 or v1beta1. Default v1beta1, as upstream.
	WebhookVersion string
	// AuthorizedTTL and UnauthorizedTTL are how long the webhook's decisions are cached. 0 disables caching.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// File is an AuthorizationConfiguration (apiserver.config.k8s.io/v1). It is reloaded when it changes.
	File string

	// RBAC is the authorizer of mode RBAC. Required.
	RBAC Resolving
	// Node is the authorizer of mode Node. If nil, a configuration with this mode is refused.
	Node Resolving
	// First are authorizers that precede all others, including the ones in File. They have no flag and are meant for
	// programs that embed the front door. If one implements authorizer.RuleResolver, its rules are listed too.
	First []authorizer.Authorizer

	// Dial opens connections to webhooks. If nil, connections are direct.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Metrics counts decisions. Required.
	Metrics *metrics.Authorization
	Logger  *zap.Logger
}

// Resolving is an authorizer that can list its rules.
type Resolving interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Validate returns an error for each invalid setting, with the name of its flag.
func (c *Config) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if c.File != "" && (len(c.Modes) > 0 || c.WebhookConfigFile != "") {
		bad("authorization-config", "says all that --authorization-mode and --authorization-webhook-* say; use one or the other")
	}
	for i, mode := range c.Modes {
		if err := checkMode(mode); err != nil {
			bad("authorization-mode", "%v", err)
		} else if slices.Contains(c.Modes[:i], mode) {
			bad("authorization-mode", "%s stands twice", mode)
		}
	}
	switch webhook := slices.Contains(c.Modes, ModeWebhook); {
	case webhook && c.WebhookConfigFile == "":
		bad("authorization-mode", "Webhook needs --authorization-webhook-config-file, the kubeconfig of the webhook")
	case !webhook && c.WebhookConfigFile != "":
		bad("authorization-webhook-config-file", "is only of use together with --authorization-mode=...,Webhook")
	}
	if v := c.WebhookVersion; v != "" && v != "v1" && v != "v1beta1" {
		bad("authorization-webhook-version", "%q is neither v1 nor v1beta1", v)
	}
	if c.AuthorizedTTL < 0 || c.UnauthorizedTTL < 0 {
		bad("authorization-webhook-cache-authorized-ttl", "times to live cannot be negative")
	}
	return errors.Join(errs...)
}

func checkMode(mode string) error {
	if instead, ok := unsupportedModes[mode]; ok {
		return fmt.Errorf("%s is not among the authorizers of this server: %s", mode, instead)
	}
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("%q is not an authorizer; there are %s", mode, strings.Join(modes, ", "))
	}
	return nil
}

// fromFlags returns the configuration that is equivalent to the flags.
func (c *Config) fromFlags() (*apiserver.AuthorizationConfiguration, error) {
	chosen := c.Modes
	if len(chosen) == 0 {
		chosen = []string{ModeRBAC}
	}
	config := &apiserver.AuthorizationConfiguration{}
	for _, mode := range chosen {
		a := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)}
		if mode == ModeWebhook {
			file, err := filepath.Abs(c.WebhookConfigFile)
			if err != nil {
				return nil, fmt.Errorf("--authorization-webhook-config-file: %w", err)
			}
			a.Webhook = c.flagWebhook(file)
		}
		config.Authorizers = append(config.Authorizers, a)
	}
	return config, nil
}

func (c *Config) flagWebhook(file string) *apiserver.WebhookConfiguration {
	version := cmp.Or(c.WebhookVersion, DefaultWebhookVersion)
	return &apiserver.WebhookConfiguration{
		Timeout:                                  metav1.Duration{Duration: flagWebhookTimeout},
		FailurePolicy:                            apiserver.FailurePolicyNoOpinion,
		SubjectAccessReviewVersion:               version,
		MatchConditionSubjectAccessReviewVersion: "v1",
		AuthorizedTTL:                            metav1.Duration{Duration: positive(c.AuthorizedTTL, DefaultAuthorizedTTL)},
		CacheAuthorizedRequests:                  c.AuthorizedTTL > 0,
		UnauthorizedTTL:                          metav1.Duration{Duration: positive(c.UnauthorizedTTL, DefaultUnauthorizedTTL)},
		CacheUnauthorizedRequests:                c.UnauthorizedTTL > 0,
		ConnectionInfo: apiserver.WebhookConnectionInfo{
			Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &file,
		},
	}
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
