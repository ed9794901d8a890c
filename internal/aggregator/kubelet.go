package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/nodes/kubelet"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
)

// KubeletConfig configures the connections to kubelets, for logs, exec, attach, port-forward and proxy.
type KubeletConfig struct {
	// PreferredAddressTypes are the types of node addresses, in order of preference.
	PreferredAddressTypes []string
	// ClientCertificate and ClientKey are presented to kubelets. Default none.
	ClientCertificate, ClientKey string
	// CertificateAuthority signs the serving certificates of kubelets. Default none: they are not verified.
	CertificateAuthority string
	// Timeout limits connecting to a kubelet, including its TLS handshake. Requests do not have a deadline.
	Timeout time.Duration
}

func defaultKubelet() KubeletConfig {
	return KubeletConfig{
		PreferredAddressTypes: []string{
			string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP), string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
		},
		Timeout: 5 * time.Second,
	}
}

func (c *KubeletConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.PreferredAddressTypes, "kubelet-preferred-address-types", c.PreferredAddressTypes, "node address types for connections to kubelets, in order of preference")
	fs.StringVar(&c.ClientCertificate, "kubelet-client-certificate", c.ClientCertificate, "client certificate for kubelets (PEM); default none")
	fs.StringVar(&c.ClientKey, "kubelet-client-key", c.ClientKey, "key of the client certificate for kubelets")
	fs.StringVar(&c.CertificateAuthority, "kubelet-certificate-authority", c.CertificateAuthority, "CA certificates that sign the serving certificates of kubelets; default none: the certificates are not verified")
	fs.DurationVar(&c.Timeout, "kubelet-timeout", c.Timeout, "timeout of connections to kubelets, and of their TLS handshakes")
}

func (c *KubeletConfig) validate(bad func(flag, format string, args ...any)) {
	checkKeyPair(bad, "kubelet-client-certificate", c.ClientCertificate, "kubelet-client-key", c.ClientKey)
	if len(c.PreferredAddressTypes) == 0 {
		bad("kubelet-preferred-address-types", "at least one type is needed, such as InternalIP")
	}
	if c.Timeout <= 0 {
		bad("kubelet-timeout", "%s is not positive", c.Timeout)
	}
}

// wireKubelets builds the connections to kubelets and pods. The proxy is built later, but before the first request.
func (h *parts) wireKubelets() {
	c := h.cfg.Kubelet
	types := make([]corev1.NodeAddressType, len(c.PreferredAddressTypes))
	for i, name := range c.PreferredAddressTypes {
		types[i] = corev1.NodeAddressType(name)
	}
	h.kubelets = kubelet.New(kubelet.Config{
		Proxy: func() *proxy.Proxy { return h.Proxy }, PreferredAddressTypes: types, Certificate: h.kubeletClientCert, Authority: h.kubeletCA,
		Timeout: c.Timeout, Tunnel: h.Egress.Cluster(), OwnAddresses: h.ownAddresses, Engine: h.cfg.BackendEngine, Logger: h.log.Named("kubelet"),
	})
}

// loadKubeletKeys reads the files that the flags name.
func (p *prepared) loadKubeletKeys(c KubeletConfig) (err error) {
	if c.ClientCertificate != "" {
		if p.kubeletClientCert, err = pki.LoadKeyPair(c.ClientCertificate, c.ClientKey); err != nil {
			return fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
	}
	if c.CertificateAuthority != "" {
		if p.kubeletCA, err = pki.LoadBundle(c.CertificateAuthority); err != nil {
			return fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
	}
	return nil
}

// closeKubelets closes the connections to kubelets and pods, after the listener has stopped.
func (h *parts) closeKubelets(ctx context.Context) error {
	<-ctx.Done()
	h.kubelets.Close()
	return nil
}
