package lifecycle

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/lifecycle/bootstrap"
	"portico.dev/internal/lifecycle/certificates"
)

// The controllers of the credentials of nodes. They are off unless asked for: those of bootstrap tokens by name, as in
// kube-controller-manager, and those of certificates by name or by keys to sign with.

// Certificates configures the controllers of CertificateSigningRequests.
type Certificates struct {
	Requests certificates.Requests
	// Informer starts the informer of CertificateSigningRequests, if it does not run, until ctx ends. Nil if they are not served.
	Informer func(ctx context.Context) cache.SharedIndexInformer
	// Signers sign. Without any, certificates are somebody else's concern.
	Signers []certificates.Signer
	// Longest is how long certificates are valid at most.
	Longest time.Duration
}

// runsWithSigners reports whether a controller runs: if it is named, or if this server signs and the controller is not left out.
func (cfg *Config) runsWithSigners(name string) bool {
	return cfg.Choice.Names(name) || len(cfg.Certificates.Signers) > 0 && cfg.Choice.Runs(name)
}

// addCertificates adds the controllers of CertificateSigningRequests that run.
func (c *Controllers) addCertificates(cfg Config) {
	add := func(name string, run func(context.Context, certificates.Config) error) {
		c.all = append(c.all, controller{name, func(ctx context.Context) error {
			informer := cfg.Certificates.Informer(ctx)
			if informer == nil {
				c.log.Warn("certificatesigningrequests are not served here (--runtime-config), so nobody approves, signs or deletes them")
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

// addBootstrapTokens adds the controllers of bootstrap tokens that are named.
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
