package aggregator

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/fleet"
	"portico.dev/internal/pki"
)

// Kubeconfig issues a client kubeconfig from the CA in a data directory that a front door has been started on. cluster is the name
// of a Cluster behind the front door, or empty for the front door itself.
func Kubeconfig(dataDir, server, cluster, user string, groups []string, ttl time.Duration) ([]byte, error) {
	switch {
	case cluster != "" && len(validation.IsDNS1123Label(cluster)) > 0:
		return nil, fmt.Errorf("--cluster: %q is not a name of a Cluster: %s", cluster, validation.IsDNS1123Label(cluster)[0])
	case user == "":
		return nil, errors.New("--user is needed: the name that the front door will know this client by")
	case strings.HasPrefix(user, "system:serviceaccount:"):
		return nil, fmt.Errorf("%q is a service account; use `kubectl create token` for it", user)
	}
	c := Default()
	c.DataDir = dataDir
	if _, err := os.Stat(c.pkiDir()); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no keys yet; start `aggregator dev` or `aggregator serve` on it once", dataDir)
	}
	keys, err := pki.ReadDirectory(c.pkiDir())
	if err != nil {
		return nil, err
	}
	at, err := clusterOf(c, server, keys.Cluster().BundlePEM())
	if err != nil {
		return nil, err
	}
	if cluster != "" {
		at.Server = strings.TrimRight(at.Server, "/") + fleet.PathPrefix + cluster
	}
	certPEM, keyPEM, err := keys.ClientKeyPair(user, groups, ttl)
	if err != nil {
		return nil, err
	}
	return kubeconfig(at, user, certPEM, keyPEM)
}

// clusterOf returns the address and the CA certificates of the front door of a data directory. server replaces the
// URL in the administrator's kubeconfig. own contains the directory's CA certificates.
func clusterOf(c Config, server string, own []byte) (*clientcmdapi.Cluster, error) {
	made := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: own}
	if server != "" {
		return made, nil
	}
	file := c.AdminKubeconfig()
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: the front door has never been ready, or its --client-ca-file does not accept the certificates that this command issues; in the first case name it with --server", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read where the front door listens: %w; name it with --server", err)
	}
	there := config.Clusters[contextName]
	if there == nil {
		return nil, fmt.Errorf("%s has no cluster %q; name the front door with --server", file, contextName)
	}
	made.Server, made.TLSServerName = there.Server, there.TLSServerName
	if !shareCertificate(there.CertificateAuthorityData, own) {
		made.CertificateAuthorityData = there.CertificateAuthorityData // its serving certificate is the operator's
	}
	return made, nil
}

// shareCertificate reports whether two bundles have a certificate in common.
func shareCertificate(a, b []byte) bool {
	of, err := pki.ParseBundle(a)
	if err != nil {
		return false
	}
	others, err := pki.ParseBundle(b)
	return err == nil && slices.ContainsFunc(of, func(c *x509.Certificate) bool { return slices.ContainsFunc(others, c.Equal) })
}

const contextName = "portico"

func kubeconfig(cluster *clientcmdapi.Cluster, user string, certPEM, keyPEM []byte) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = cluster
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig of %q: %w", user, err)
	}
	return data, nil
}
