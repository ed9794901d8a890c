package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/lifecycle/certificates"
	"portico.dev/internal/pki"
)

// SigningConfig configures the CA that signs certificates for CertificateSigningRequests. Without a CA, Portico does
// not sign them. The flags are kube-controller-manager's.
type SigningConfig struct {
	// All signs for every signer name. It excludes the other CAs.
	All                                          KeyFiles
	KubeletServing, KubeletClient, APIServerUser KeyFiles
	// Duration is how long certificates are valid, unless a request specifies less. Default a year.
	Duration time.Duration
}

// KeyFiles are the files of a certificate and its key.
type KeyFiles struct{ Cert, Key string }

func defaultSigning() SigningConfig { return SigningConfig{Duration: 365 * 24 * time.Hour} }

// signerFiles is a pair of flags with the signer that it configures.
type signerFiles struct {
	flag, signer string
	files        *KeyFiles
}

func (c *SigningConfig) specific() []signerFiles {
	return []signerFiles{
		{"cluster-signing-kubelet-serving", certificatesv1.KubeletServingSignerName, &c.KubeletServing},
		{"cluster-signing-kubelet-client", certificatesv1.KubeAPIServerClientKubeletSignerName, &c.KubeletClient},
		{"cluster-signing-kube-apiserver-client", certificatesv1.KubeAPIServerClientSignerName, &c.APIServerUser},
	}
}

// pairs returns all pairs of flags.
func (c *SigningConfig) pairs() []signerFiles {
	return append([]signerFiles{{"cluster-signing", "every signer", &c.All}}, c.specific()...)
}

func (c *SigningConfig) addFlags(fs *pflag.FlagSet) {
	for _, p := range c.pairs() {
		fs.StringVar(&p.files.Cert, p.flag+"-cert-file", p.files.Cert, "CA certificate that signs approved CertificateSigningRequests of "+p.signer+"; default none: this server does not sign them")
		fs.StringVar(&p.files.Key, p.flag+"-key-file", p.files.Key, "key of --"+p.flag+"-cert-file")
	}
	fs.DurationVar(&c.Duration, "cluster-signing-duration", c.Duration, "lifetime of signed certificates; a CertificateSigningRequest may request a shorter one")
}

func (c *SigningConfig) validate(controllers lifecycle.Choice, bad func(flag, format string, args ...any)) {
	given := false
	for _, p := range c.pairs() {
		given = given || p.files.Cert != "" || p.files.Key != ""
		checkKeyPair(bad, p.flag+"-cert-file", p.files.Cert, p.flag+"-key-file", p.files.Key)
	}
	for _, p := range c.specific() {
		if c.All != (KeyFiles{}) && *p.files != (KeyFiles{}) {
			bad("cluster-signing-cert-file", "signs for every signer; use it, or --%s-cert-file and others like it", p.flag)
		}
	}
	if c.Duration <= 0 {
		bad("cluster-signing-duration", "%s is not positive", c.Duration)
	}
	if !given && controllers.Names(lifecycle.CSRSigning) {
		bad("controllers", "%s needs --cluster-signing-cert-file and --cluster-signing-key-file", lifecycle.CSRSigning)
	}
}

// loadSigners reads the files that the flags name.
func (p *prepared) loadSigners(c SigningConfig) error {
	files := c.specific()
	if c.All != (KeyFiles{}) {
		for i := range files {
			files[i].flag, files[i].files = "cluster-signing", &c.All
		}
	}
	loaded := map[KeyFiles]*pki.KeyPair{}
	for _, f := range files {
		if *f.files == (KeyFiles{}) {
			continue
		}
		pair := loaded[*f.files]
		if pair == nil {
			var err error
			if pair, err = loadAuthority(*f.files); err != nil {
				return fmt.Errorf("--%s-cert-file: %w", f.flag, err)
			}
			loaded[*f.files] = pair
			p.signingKeys = append(p.signingKeys, pair)
		}
		p.signers = append(p.signers, certificates.Signer{Name: f.signer, Authority: pair})
	}
	return nil
}

func loadAuthority(files KeyFiles) (*pki.KeyPair, error) {
	pair, err := pki.LoadKeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	return pair, certificates.CheckAuthority(pair)
}

// certificateControllers returns the dependencies of the controllers of CertificateSigningRequests.
func (h *parts) certificateControllers() lifecycle.Certificates {
	return lifecycle.Certificates{
		Requests: clients.NewSigningRequests(h.clients), Signers: h.signers, Longest: h.cfg.Signing.Duration,
		Informer: func(ctx context.Context) cache.SharedIndexInformer {
			kind := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
			if at, served := h.servedHere(kind.GroupResource()); !served || at != kind {
				return nil
			}
			informer, err := h.informers.ForResource(kind)
			if err != nil { // unreachable: the kind is built into Kubernetes
				h.log.Error("failed to create the informer for certificatesigningrequests")
				return nil
			}
			shared := informer.Informer()
			h.informers.Start(ctx.Done())
			return shared
		},
	}
}
