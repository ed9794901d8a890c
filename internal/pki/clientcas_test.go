package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
)

// namedAuthorities returns the common names in the CertificateRequest of a handshake.
func namedAuthorities(t *testing.T, config *tls.Config, version uint16, serverName string) (names []string) {
	t.Helper()
	client, server := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- tls.Server(server, config).Handshake() }()
	var seen Inspection
	look := InspectionConfig(serverName, nil, &seen)
	look.MinVersion, look.MaxVersion = version, version
	err := tls.Client(client, look).Handshake()
	_ = client.Close() // the server may wait for the end
	if other := <-ended; err != nil || other != nil && !errors.Is(other, net.ErrClosed) {
		t.Fatalf("handshake: client error %v, server error %v, want none", err, other)
	}
	if !seen.Asked {
		t.Fatal("the handshake had no CertificateRequest, want one")
	}
	for _, der := range seen.AcceptableCAs {
		var parsed pkix.RDNSequence
		if _, err := asn1.Unmarshal(der, &parsed); err != nil {
			t.Fatal(err)
		}
		var name pkix.Name
		name.FillFromRDNSequence(&parsed)
		names = append(names, name.CommonName)
	}
	slices.Sort(names)
	return names
}

func TestHandshakeAdvertisesClientCAs(t *testing.T) {
	authority := func(name string) *Authority {
		a, err := NewAuthority(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	bundle := func(all ...*Authority) (text []byte) {
		for _, a := range all {
			text = append(text, a.PEM()...)
		}
		return text
	}
	clientCA, frontProxyCA, nextCA, serving := authority("client CA"), authority("front-proxy CA"), authority("next client CA"), authority("serving CA")
	cert, key, err := serving.Issue(Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := StaticBundle(bundle(clientCA))
	if err != nil {
		t.Fatal(err)
	}
	proxies, err := StaticBundle(bundle(frontProxyCA))
	if err != nil {
		t.Fatal(err)
	}
	pool := JoinPools(clients, proxies)
	config := NameClientCAs(ServerConfig(pair), func(hello *tls.ClientHelloInfo) *x509.CertPool {
		if hello.ServerName == "other.internal" {
			return nil
		}
		return pool()
	})
	var many []*Authority
	for i := range 20 {
		many = append(many, authority(fmt.Sprintf("%1000d", i)))
	}
	for _, step := range []struct {
		situation, serverName string
		clientCAs             []*Authority
		want                  []string
	}{
		{"two bundles", "server", []*Authority{clientCA}, []string{"client CA", "front-proxy CA"}},
		{"another CA was added", "server", []*Authority{clientCA, nextCA}, []string{"client CA", "front-proxy CA", "next client CA"}},
		{"the old CA was removed", "server", []*Authority{nextCA}, []string{"front-proxy CA", "next client CA"}},
		{"a name without client CAs", "other.internal", []*Authority{nextCA}, nil},
		{"more names than fit", "server", many, nil},
		{"few names again", "server", []*Authority{clientCA}, []string{"client CA", "front-proxy CA"}},
	} {
		if err := clients.Set(bundle(step.clientCAs...)); err != nil {
			t.Fatal(err)
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			if got := namedAuthorities(t, config, version, step.serverName); !slices.Equal(got, step.want) {
				t.Errorf("%s, %s: named authorities = %q, want %q", step.situation, tls.VersionName(version), got, step.want)
			}
		}
	}
	if first, second := pool(), pool(); first != second {
		t.Error("pool() returned another pool without a change, want the same")
	}
}
