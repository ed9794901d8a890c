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

// The authorizers that there are, as --authorization-mode and an AuthorizationConfiguration spell them.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeWebhook     = "Webhook"
)

var modes = []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeNode, ModeRBAC, ModeWebhook}

// unsupportedModes are the modes of kube-apiserver that are not supported, and what to do instead.
var unsupportedModes = map[string]string{
	"ABAC": "write the policy as RBAC roles and bindings, or serve it with a webhook",
}

// Defaults of the flags, which are kube-apiserver's.
const (
	DefaultAuthorizedTTL   = 5 * time.Minute
	DefaultUnauthorizedTTL = 30 * time.Second
	DefaultWebhookVersion  = "v1beta1"
	// flagWebhookTimeout is the deadline of a webhook that is named by a flag; a file says its own.
	flagWebhookTimeout = 30 * time.Second
)

// Config is the authorizers: either File or the other settings.
type Config struct {
	// Modes are authorizers in the order in which they are asked. Default RBAC alone.
	Modes []string
	// WebhookConfigFile is the kubeconfig of the webhook of mode Webhook.
	WebhookConfigFile string
	// WebhookVersion of SubjectAccessReview is v1 or v1beta1. Default v1beta1, as upstream's.
	WebhookVersion string
	// AuthorizedTTL and UnauthorizedTTL are how long the webhook's answers are remembered; 0: not at all.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// File is an AuthorizationConfiguration (apiserver.config.k8s.io/v1), which is followed.
	File string

	// RBAC is the authorizer of mode RBAC. Required.
	RBAC Resolving
	// Node is the authorizer of mode Node. Nil: there is none, and no configuration may have it.
	Node Resolving
	// First are asked before all others, also before those of File, in order. They have no flag: they are for programs that
	// embed the front door. One that is an authorizer.RuleResolver too is asked for its rules.
	First []authorizer.Authorizer

	// Dial makes the connections to webhooks. Nil: they are direct.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Metrics counts decisions. Required.
	Metrics *metrics.Authorization
	Logger  *zap.Logger
}

// Resolving decides, and lists the rules by which it does.
type Resolving interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Validate reports every setting that cannot work, each with its flag.
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

// fromFlags is the configuration that the flags stand for.
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
