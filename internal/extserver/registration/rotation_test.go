package registration_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/pki"
)

const serverName = "m.kube-system.svc"

// verifying is a front door that trusts only the last caBundle it received.
type verifying struct {
	mu      sync.Mutex
	bundle  []byte
	bundles int
}

func (v *verifying) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	if r.Method == http.MethodGet {
		fmt.Fprint(answer, `{}`)
		return answer.Result(), nil
	}
	var o struct {
		Kind string
		Spec struct{ CABundle string }
	}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, err
	}
	if o.Kind == "APIService" {
		bundle, err := base64.StdEncoding.DecodeString(o.Spec.CABundle)
		if err != nil {
			return nil, err
		}
		v.mu.Lock()
		if string(bundle) != string(v.bundle) {
			v.bundle, v.bundles = bundle, v.bundles+1
		}
		v.mu.Unlock()
	}
	fmt.Fprint(answer, `{"metadata":{"uid":"u","resourceVersion":"1"}}`)
	return answer.Result(), nil
}

// probe does one handshake with the server with the current trust of the front door.
func (v *verifying) probe(server *pki.KeyPair) error {
	v.mu.Lock()
	bundle := v.bundle
	v.mu.Unlock()
	client, err := pki.ClientConfig(pki.ClientOptions{ServerName: serverName, Roots: bundle})
	if err != nil {
		return err
	}
	here, there := net.Pipe()
	defer here.Close()
	done := make(chan error, 1)
	go func() {
		defer there.Close()
		done <- tls.Server(there, pki.ServerConfig(server)).Handshake()
	}()
	err = tls.Client(here, client).Handshake()
	here.Close()
	<-done
	return err
}

// Combines a certificate that is replaced repeatedly with a registration that is maintained. The front door trusts only the
// registration. Its bundle always verifies the server.
func TestAuthorityRotationFailsNoVerifiedHandshake(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		own, err := registration.NewCertificate(registration.CertificateConfig{
			Names: []string{serverName}, TTL: 6 * time.Hour, AuthorityTTL: 24 * time.Hour, Overlap: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		front := &verifying{}
		registrar, err := registration.NewRegistrar(registration.RegistrarConfig{
			Client: &rest.Config{Host: "https://front-door.invalid", Transport: front}, Certificate: own,
			Registration: func() registration.Registration {
				return registration.Registration{
					Namespace: "kube-system", Service: "m", Port: 4443, CABundle: own.CABundle(),
					GroupVersions: []schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1"}},
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		for _, run := range []func(context.Context) error{own.Run, registrar.Run} {
			parts.Go(func() {
				if err := run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		<-registrar.Ready()
		for began := time.Now(); time.Since(began) < 4*24*time.Hour; time.Sleep(5 * time.Minute) {
			synctest.Wait()
			if err := front.probe(own.KeyPair()); err != nil {
				t.Errorf("handshake after %s failed: %v, want no error", time.Since(began), err)
				break
			}
		}
		if front.bundles < 6 { // the first one, and two for each replacement: with both authorities and without the old one
			t.Errorf("%d bundles in four days, want at least 6", front.bundles)
		}
		cancel()
		parts.Wait()
	})
}
