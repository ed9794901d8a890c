package front

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/internal/pki"
)

// keys are the certificates of a process: one for the server, and one for its only client. Their authority signs no others.
type keys struct {
	authority *pki.Authority
	serving   *pki.KeyPair
	clients   *pki.Bundle // accepted authorities
	user      string      // common name of the client's certificate
	cert, key []byte      // of the client, in PEM
}

// keysTTL is the lifetime of the certificates. A front that runs for longer must be restarted.
const keysTTL = 365 * 24 * time.Hour

func newKeys(address string) (*keys, error) {
	k := &keys{user: "front"}
	var err error
	if k.authority, err = pki.NewAuthorityFor("portico-front", keysTTL); err != nil {
		return nil, err
	}
	if k.clients, err = pki.StaticBundle(k.authority.PEM()); err != nil {
		return nil, err
	}
	server := pki.Leaf{CommonName: "portico-front", DNSNames: []string{"localhost"}, IPs: []net.IP{net.ParseIP(address)}, Server: true, TTL: keysTTL}
	cert, key, err := k.authority.Issue(server)
	if err != nil {
		return nil, err
	}
	if k.serving, err = pki.StaticKeyPair(cert, key); err != nil {
		return nil, err
	}
	k.cert, k.key, err = k.authority.Issue(pki.Leaf{CommonName: k.user, Client: true, TTL: keysTTL})
	return k, err
}

// kubeconfig returns the kubeconfig of the client. namespace is the default namespace, as in the kubeconfig of the cluster.
func (k *keys) kubeconfig(server, namespace string) ([]byte, error) {
	const name = "portico-front"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: k.authority.PEM()}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: k.cert, ClientKeyData: k.key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	c.CurrentContext = name
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return data, nil
}
