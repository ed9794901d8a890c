package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/pki"
)

func TestOverlapOfClientAndFrontProxyCAs(t *testing.T) {
	clients, proxies := authtest.NewCA(t, "clients"), authtest.NewCA(t, "proxies")
	renewed := *clients
	renewed.Cert = clients.CrossSign(t, clients)
	tests := []struct {
		name             string
		clients, proxies []*x509.Certificate
		want             bool
	}{
		{"apart", []*x509.Certificate{clients.Cert}, []*x509.Certificate{proxies.Cert}, false},
		{"A12 the same certificate", []*x509.Certificate{clients.Cert}, []*x509.Certificate{proxies.Cert, clients.Cert}, true},
		{"A12 the same key in a renewed certificate", []*x509.Certificate{clients.Cert}, []*x509.Certificate{renewed.Cert}, true},
		{"A12 the client CA cross-signed by the front-proxy CA", []*x509.Certificate{proxies.CrossSign(t, clients)}, []*x509.Certificate{proxies.Cert}, true},
		{"the front-proxy CA cross-signed by the client CA gives clients nothing", []*x509.Certificate{clients.Cert}, []*x509.Certificate{clients.CrossSign(t, proxies)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := overlap(tt.clients, tt.proxies); (got != nil) != tt.want {
				t.Fatalf("overlap() = %v, want one = %t", got, tt.want)
			}
		})
	}
}

// The property behind A12: for all authorities and names, the identity headers of a request with a certificate that only the client CA signed are never
// accepted, unless an administrator listed the certificate's name.
func TestClientCertificateCannotSendIdentityHeaders(t *testing.T) {
	a, b := authtest.NewCA(t, "a"), authtest.NewCA(t, "b")
	cross := b.CrossSign(t, a)
	leaves := map[string]*tls.Certificate{}
	for _, name := range []string{"alice", "front-proxy"} {
		leaves[name] = a.Client(t, name)
	}
	bundles := [][]*x509.Certificate{{a.Cert}, {b.Cert}, {a.Cert, b.Cert}, {cross}, {b.Cert, cross}}
	rapid.Check(t, func(t *rapid.T) {
		clientCerts := append([]*x509.Certificate{a.Cert}, rapid.SampledFrom(bundles).Draw(t, "also clients")...)
		allowed := rapid.SampledFrom([][]string{nil, {"front-proxy"}, {"other"}}).Draw(t, "allowed")
		name := rapid.SampledFrom([]string{"alice", "front-proxy"}).Draw(t, "name")
		chain := []*x509.Certificate{leaves[name].Leaf}
		if rapid.Bool().Draw(t, "with cross-signed intermediate") {
			chain = append(chain, cross)
		}
		trust := &Trust{
			Clients:    mustBundle(t, clientCerts),
			FrontProxy: &FrontProxy{Bundle: mustBundle(t, rapid.SampledFrom(bundles).Draw(t, "proxies")), AllowedNames: allowed, Headers: usual},
		}
		r := &http.Request{
			Header: http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}},
			TLS:    &tls.ConnectionState{PeerCertificates: chain},
		}
		response, err := Authenticate(r, trust, nil)
		if err != nil || response.User.GetName() == name {
			return
		}
		if len(allowed) == 0 || allowed[0] != name {
			t.Fatalf("user of a request with the client certificate %s = %s, want no accepted identity header", name, response.User.GetName())
		}
	})
}

func mustBundle(t interface{ Fatal(...any) }, certs []*x509.Certificate) *pki.Bundle {
	b, err := pki.StaticBundle(authtest.PEM(certs...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWithAuthenticated(t *testing.T) {
	for name, tt := range map[string]struct {
		in   *user.DefaultInfo
		want bool
	}{
		"a user":                                {&user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}, true},
		"a user who has the group":              {&user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}, true},
		"anonymous, as a front proxy states it": {&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, false},
		"unauthenticated to the front proxy":    {&user.DefaultInfo{Name: "x", Groups: []string{user.AllUnauthenticated}}, false},
		"anonymous by name, without the group":  {&user.DefaultInfo{Name: user.Anonymous}, false},
	} {
		t.Run(name, func(t *testing.T) {
			groups := strings.Join(WithAuthenticated(tt.in).GetGroups(), ",")
			if got := strings.Count(groups, user.AllAuthenticated); got > 1 || (got == 1) != tt.want {
				t.Fatalf("groups = %s, want system:authenticated at most once, present = %t", groups, tt.want)
			}
		})
	}
}

func TestUnauthenticatedTokensAreRejected(t *testing.T) {
	trust := &Trust{}
	request := func() *http.Request { return &http.Request{Header: http.Header{"Authorization": {"Bearer t"}}} }
	t.Run("nobody recognises it", func(t *testing.T) {
		nobody := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, nil })
		if _, err := Authenticate(request(), trust, nobody); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("Authenticate with an unknown token error = %v, want ErrInvalidToken", err)
		}
	})
	t.Run("no tokens are configured", func(t *testing.T) {
		if _, err := Authenticate(request(), trust, nil); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("Authenticate without a token authenticator error = %v, want ErrInvalidToken", err)
		}
	})
	t.Run("no credential at all", func(t *testing.T) {
		if _, err := Authenticate(&http.Request{Header: http.Header{}}, trust, nil); !errors.Is(err, ErrNone) {
			t.Fatalf("Authenticate without a credential error = %v, want ErrNone", err)
		}
	})
}

func TestIsFrontProxy(t *testing.T) {
	clients, proxies := authtest.NewCA(t, "clients"), authtest.NewCA(t, "proxies")
	trust := &Trust{
		Clients:    authtest.Bundle(t, clients.Cert),
		FrontProxy: &FrontProxy{Bundle: authtest.Bundle(t, proxies.Cert), AllowedNames: []string{"front-proxy-client"}},
	}
	for situation, test := range map[string]struct {
		chain []*x509.Certificate
		want  bool
	}{
		"a front proxy":            {[]*x509.Certificate{proxies.Client(t, "front-proxy-client").Leaf}, true},
		"another name":             {[]*x509.Certificate{proxies.Client(t, "other").Leaf}, false},
		"a client":                 {[]*x509.Certificate{clients.Client(t, "front-proxy-client").Leaf}, false},
		"an expired certificate":   {[]*x509.Certificate{proxies.Client(t, "front-proxy-client", authtest.Expired).Leaf}, false},
		"a certificate of servers": {[]*x509.Certificate{proxies.Client(t, "front-proxy-client", authtest.ServerOnly).Leaf}, false},
		"no certificate":           {nil, false},
	} {
		if got := trust.IsFrontProxy(test.chain); got != test.want {
			t.Errorf("%s: IsFrontProxy() = %t, want %t", situation, got, test.want)
		}
	}
}
