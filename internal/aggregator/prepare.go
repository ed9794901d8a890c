package aggregator

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"go.uber.org/zap"

	"portico.dev/internal/lifecycle/certificates"
	"portico.dev/internal/pki"
	"portico.dev/internal/store"
)

// prepared contains the resources of a start that must exist before any part is built: keys, trust bundles and a
// bound port. Invalid settings are reported here, one per line, before any part has started.
type prepared struct {
	listener net.Listener // nil with Embedded.NoListener
	url      string
	serving  pki.Leaf

	keys            *pki.Directory
	servingCert     *pki.KeyPair // for clients
	proxyClientCert *pki.KeyPair // for extension servers
	// kubeletClientCert to signingKeys are nil unless a flag names them.
	kubeletClientCert *pki.KeyPair
	kubeletCA         *pki.Bundle
	signers           []certificates.Signer
	signingKeys       []*pki.KeyPair // of signers, without duplicates
	clientCA          *pki.Bundle
	frontProxy        *pki.Bundle
	rootCA            *pki.Bundle // for workloads that verify this server

	signingKey string
	issuer     string
	// member is this member of an embedded etcd with several. It is nil for a single member, and for an external
	// etcd.
	member *store.Cluster
}

// privateFiles are the private files of the front door, its etcd and `aggregator dev`. A user who can read or replace
// the keys can impersonate this server.
var privateFiles = []string{"pki", "etcd", "admin.kubeconfig", "extserver.kubeconfig", "extserver.token", "join-token"}

// prepare completes c with the contents of the data directory. It binds the port first: a start that fails to do so
// does not generate keys, and does not join a cluster.
func prepare(ctx context.Context, c *Config, log *zap.Logger) (p *prepared, err error) {
	p = &prepared{listener: c.Embedded.Listener}
	if p.listener == nil && !c.Embedded.NoListener {
		if p.listener, err = c.Listen(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil && p.listener != nil {
			p.listener.Close()
		}
	}()
	if err := pki.PrepareDataDir(c.DataDir, privateFiles...); err != nil {
		return p, err
	}
	if p.member, err = c.prepareCluster(ctx, log); err != nil {
		return p, err
	}
	return p, p.load(*c)
}

// address returns host:port of the listener. It is empty without a listener.
func (p *prepared) address() string {
	if p.listener == nil {
		return ""
	}
	return p.listener.Addr().String()
}

// noListenerURL is the URL of a front door without a listener. Its name does not resolve.
const noListenerURL = "https://portico.invalid"

func (p *prepared) load(c Config) error {
	host := dialableHost(c.BindAddress)
	p.url = noListenerURL
	if p.listener != nil {
		at, ok := p.listener.Addr().(*net.TCPAddr)
		if !ok {
			return fmt.Errorf("listener on %s: clients, and the Service kubernetes, need a TCP address", p.listener.Addr())
		}
		if c.Embedded.Listener != nil {
			host = dialableHost(at.IP.String())
		}
		p.url = "https://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
	p.serving = servingLeaf(c, host)
	var err error
	if p.keys, err = pki.OpenDirectory(c.pkiDir(), p.serving); err != nil {
		return fmt.Errorf("keys in the data directory: %w", err)
	}
	if m := p.member; m != nil {
		if err := p.keys.EnsureEtcd(m.Name, []net.IP{net.ParseIP(hostOf(m.Address))}); err != nil {
			return fmt.Errorf("keys of etcd in the data directory: %w", err)
		}
		m.CAFile, m.CertFile, m.KeyFile = p.keys.EtcdFiles()
	}
	if err := c.checkPrivateKeys(); err != nil {
		return err
	}
	if p.servingCert, err = pki.LoadKeyPair(p.file(c.TLSCertFile, "serving.crt"), p.file(c.TLSPrivateKeyFile, "serving.key")); err != nil {
		return err
	}
	if p.proxyClientCert, err = pki.LoadKeyPair(p.file(c.ProxyClientCertFile, "front-proxy-client.crt"), p.file(c.ProxyClientKeyFile, "front-proxy-client.key")); err != nil {
		return err
	}
	if err = p.loadKubeletKeys(c.Kubelet); err != nil {
		return err
	}
	if err = p.loadSigners(c.Signing); err != nil {
		return err
	}
	if p.clientCA, err = pki.LoadBundle(p.file(c.ClientCAFile, "client-ca.crt")); err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if p.frontProxy, err = pki.LoadBundle(p.file(c.RequestHeaderClientCAFile, "front-proxy-ca.crt")); err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if p.rootCA, err = pki.LoadBundle(p.file(c.RootCAFile, "ca.crt")); err != nil {
		return fmt.Errorf("--root-ca-file: %w", err)
	}
	p.signingKey = p.file(c.ServiceAccountSigningKeyFile, "service-account.key")
	p.issuer = c.ServiceAccountIssuer
	if p.issuer == "" {
		// Not the address: tokens must stay valid after a restart on another port.
		p.issuer = "https://kubernetes.default.svc.cluster.local"
	}
	return nil
}

func (p *prepared) file(given, own string) string {
	if given != "" {
		return given
	}
	return p.keys.Path(own)
}

// servingLeaf returns the names by which clients reach the front door, inside a cluster and on this machine.
func servingLeaf(c Config, host string) pki.Leaf {
	leaf := pki.Leaf{
		CommonName: "portico",
		DNSNames:   []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		IPs:        []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil && name != "" && name != "localhost" {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	for _, name := range slices.Concat([]string{host}, c.AdvertiseNames, c.clusterNames()) {
		ip := net.ParseIP(name)
		switch {
		case ip == nil && !slices.Contains(leaf.DNSNames, name):
			leaf.DNSNames = append(leaf.DNSNames, name)
		case ip != nil && !slices.ContainsFunc(leaf.IPs, ip.Equal):
			leaf.IPs = append(leaf.IPs, ip)
		}
	}
	return leaf
}

// dialableHost returns the address by which a client on this machine reaches a listener.
func dialableHost(bind string) string {
	ip := net.ParseIP(bind)
	switch {
	case ip.IsUnspecified() && ip.To4() != nil:
		return "127.0.0.1"
	case ip.IsUnspecified():
		return "::1"
	}
	return bind
}
