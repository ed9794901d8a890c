package lifecycle

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/lifecycle/bootstrap"
	"portico.dev/internal/lifecycle/certificates"
)

// The controllers of node credentials are off by default. Bootstrap token controllers run if they are named, as in
// kube-controller-manager. Certificate controllers run if they are named or if signing keys are configured.

// Certificates configures the controllers of CertificateSigningRequests.
type Certificates struct {
	Requests certificates.Requests
	// Informer starts the informer of CertificateSigningRequests, if it is not running, until ctx ends. It returns nil if they
	// are not served.
	Informer func(ctx context.Context) cache.SharedIndexInformer
	// Signers sign certificates. If empty, another component must sign them.
	Signers []certificates.Signer
	// Longest is the maximum validity of certificates.
	Longest time.Duration
}

// runsWithSigners reports whether a controller runs: it is named, or this server signs and the controller is not excluded.
func (cfg *Config) runsWithSigners(name string) bool {
	return cfg.Choice.Names(name) || len(cfg.Certificates.Signers) > 0 && cfg.Choice.Runs(name)
}

// addCertificates adds the selected controllers of CertificateSigningRequests.
func (c *Controllers) addCertificates(cfg Config) {
	add := func(name string, run func(context.Context, certificates.Config) error) {
		c.all = append(c.all, controller{name, func(ctx context.Context) error {
			informer := cfg.Certificates.Informer(ctx)
			if informer == nil {
				c.log.Warn("CertificateSigningRequests are disabled by --runtime-config and are not approved, signed or deleted")
				<-ctx.Done()
				return nil
			}
			return run(ctx, certificates.Config{
				Client: cfg.Client, Requests: cfg.Certificates.Requests, Informer: informer, Election: cfg.Election, Logger: c.log,
			})
		}})
	}
	if cfg.runsWithSigners(CSRApproving) {
		add(CSRApproving, certificates.RunApprover)
	}
	if len(cfg.Certificates.Signers) > 0 && cfg.Choice.Runs(CSRSigning) {
		add(CSRSigning, func(ctx context.Context, config certificates.Config) error {
			return certificates.RunSigners(ctx, config, cfg.Certificates.Signers, cfg.Certificates.Longest)
		})
	}
	if cfg.runsWithSigners(CSRCleaner) {
		add(CSRCleaner, certificates.RunCleaner)
	}
}

// addBootstrapTokens adds the bootstrap token controllers that are named.
func (c *Controllers) addBootstrapTokens(cfg Config) {
	config := bootstrap.Config{Client: cfg.Client, Secrets: cfg.Secrets, Election: cfg.Election, Logger: c.log}
	for name, run := range map[string]func(context.Context, bootstrap.Config) error{
		BootstrapSigner: bootstrap.RunSigner, TokenCleaner: bootstrap.RunCleaner,
	} {
		if cfg.Choice.Names(name) {
			c.all = append(c.all, controller{name, func(ctx context.Context) error { return run(ctx, config) }})
		}
	}
}
