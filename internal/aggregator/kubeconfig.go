package aggregator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/pki"
)

// Kubeconfig issues a client kubeconfig from the authority in a data directory that a front door has been started on.
func Kubeconfig(dataDir, server, user string, groups []string, ttl time.Duration) ([]byte, error) {
	switch {
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
	if server == "" {
		if server, err = serverOf(c.AdminKubeconfig()); err != nil {
			return nil, err
		}
	}
	certPEM, keyPEM, err := keys.ClientKeyPair(user, groups, ttl)
	if err != nil {
		return nil, err
	}
	return kubeconfig(server, keys.Cluster().BundlePEM(), user, certPEM, keyPEM)
}

func serverOf(file string) (string, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return "", fmt.Errorf("read where the front door listens: %w; name it with --server", err)
	}
	if cluster := config.Clusters[contextName]; cluster != nil {
		return cluster.Server, nil
	}
	return "", fmt.Errorf("%s has no cluster %q; name the front door with --server", file, contextName)
}

const contextName = "portico"

func kubeconfig(server string, ca []byte, user string, certPEM, keyPEM []byte) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig of %q: %w", user, err)
	}
	return data, nil
}
