package aggregator

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/pki"
)

// readAdmin reads the administrator's certificate and key. While the files are being replaced, they may not match, so
// readAdmin retries for a second.
func (a *Aggregator) readAdmin() (certPEM, keyPEM []byte, err error) {
	for range 20 {
		if certPEM, err = os.ReadFile(a.keys.Path("admin.crt")); err != nil {
			return nil, nil, err
		}
		if keyPEM, err = os.ReadFile(a.keys.Path("admin.key")); err != nil {
			return nil, nil, err
		}
		if _, err = pki.StaticKeyPair(certPEM, keyPEM); err == nil {
			return certPEM, keyPEM, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, nil, fmt.Errorf("admin.crt with admin.key in %s: %w", a.cfg.pkiDir(), err)
}

// refreshAdminKubeconfig rewrites the administrator's kubeconfig after its authorities have been replaced.
func (a *Aggregator) refreshAdminKubeconfig(h *parts) {
	if a.cfg.Embedded.NoListener {
		return
	}
	if err := a.writeAdminKubeconfig(h); err != nil {
		a.log.Error("failed to update the administrator's kubeconfig; it contains the previous certificates", zap.String("file", a.cfg.AdminKubeconfig()), zap.Error(err))
	}
}

// writeAdminKubeconfig writes the kubeconfig of the administrator. It is written once the front door serves requests,
// so that the file is usable as soon as it exists. If --client-ca-file does not accept the administrator's
// certificate, an existing file is removed: it would get a 401 for every request.
func (a *Aggregator) writeAdminKubeconfig(h *parts) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	certPEM, keyPEM, err := a.readAdmin()
	if err != nil {
		return err
	}
	file := a.cfg.AdminKubeconfig()
	if err := h.checkAccepted(certPEM); err != nil {
		a.log.Info("the administrator's kubeconfig is not written", zap.String("file", file), zap.Error(err))
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := kubeconfig(h.clusterFor(a.url), pki.AdminName, certPEM, keyPEM)
	if err != nil {
		return err
	}
	return pki.WriteFile(file, data, 0o600)
}

// checkAccepted returns an error if this front door does not accept a client certificate that the CA in the data
// directory has signed.
func (h *parts) checkAccepted(certPEM []byte) error {
	chain, err := pki.ParseBundle(certPEM)
	if err != nil {
		return err
	}
	if err := h.clientCA.VerifyClient(chain); err != nil {
		return fmt.Errorf("client certificates of the data directory get 401, because its CA %s is not in --client-ca-file %s (%w): use client certificates of your own CA, for example of group %s, "+
			"or add that CA to the file and restart", h.keys.Path("client-ca.crt"), h.cfg.ClientCAFile, err, pki.AdminGroup)
	}
	return nil
}

// clusterFor returns the address of this front door, and the certificates with which clients verify it.
func (h *parts) clusterFor(server string) *clientcmdapi.Cluster {
	cluster := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: h.keys.Cluster().BundlePEM()}
	if h.cfg.TLSCertFile == "" {
		return cluster
	}
	// kubectl uses the CA certificates of the machine if this is empty.
	cluster.CertificateAuthorityData = h.publishedRootCA()
	if at, err := url.Parse(server); err == nil {
		cluster.TLSServerName = serverName(h.servingCert.Leaf(), at.Hostname())
	}
	return cluster
}

// serverName returns a name with which clients verify a certificate that they reach at host. It is empty if the
// certificate is valid for host, or contains no other name.
func serverName(leaf *x509.Certificate, host string) string {
	if leaf.VerifyHostname(host) == nil {
		return ""
	}
	if len(leaf.DNSNames) > 0 {
		return strings.Replace(leaf.DNSNames[0], "*", "portico", 1)
	}
	if len(leaf.IPAddresses) > 0 {
		return leaf.IPAddresses[0].String()
	}
	return ""
}

// requireAdminKubeconfig returns an error if a ready front door has not written an administrator's kubeconfig.
func requireAdminKubeconfig(c Config) error {
	if _, err := os.Stat(c.AdminKubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.New("--client-ca-file does not accept the administrator's certificate, which `aggregator dev` needs: leave the flag out, or run `aggregator serve`")
}

// warnOfRefusedCredentials logs the credentials that are or may be refused because of the flags. kube-apiserver and
// kube-controller-manager start with such flags too.
func (h *parts) warnOfRefusedCredentials() {
	log := h.log.Named("keys")
	if h.cfg.ProxyClientCertFile == "" {
		leaf := h.proxyClientCert.Leaf()
		names := h.cfg.RequestHeaderAllowedNames
		refused := h.frontProxy.VerifyClient([]*x509.Certificate{leaf}) != nil
		if refused || len(names) > 0 && !slices.Contains(names, leaf.Subject.CommonName) {
			log.Warn("extension servers will reject the client certificate of this front door, which --requestheader-client-ca-file or --requestheader-allowed-names "+
				"does not accept; set --proxy-client-cert-file and --proxy-client-key-file",
				zap.String("certificate", h.keys.Path("front-proxy-client.crt")), zap.String("common-name", leaf.Subject.CommonName))
		}
	}
	for _, pair := range h.signingKeys {
		if ca := pair.Leaf(); !ca.IsCA {
			log.Warn("a signing CA certificate has no basic constraints because its X.509 version is lower than 3; some clients reject certificates that it signed; reissue it as version 3",
				zap.Stringer("subject", ca.Subject), zap.Int("version", ca.Version))
		}
	}
	for _, s := range h.signers {
		if s.Name != certificatesv1.KubeAPIServerClientSignerName && s.Name != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		_, err := s.Authority.Leaf().Verify(x509.VerifyOptions{Roots: h.clientCA.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			log.Warn("client certificates of this signer will get 401 because --client-ca-file does not contain its CA; add the CA to the file",
				zap.String("signer", s.Name), zap.Error(err))
		}
	}
}
