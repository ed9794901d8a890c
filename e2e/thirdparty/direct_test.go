package thirdparty

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"

	"portico.dev/internal/pki"
)

// direct sends a request to the server without the front door, with a certificate and an administrator's identity headers.
func (s *third) direct(ctx context.Context, ca *pki.Authority, path string) (int, string, error) {
	return s.directAs(ctx, ca, path, "somebody", "system:masters")
}

func (s *third) directAs(ctx context.Context, ca *pki.Authority, path, user, group string) (int, string, error) {
	cert, key, err := ca.Issue(pki.Leaf{CommonName: pki.FrontProxyClientName, Client: true, TTL: time.Hour})
	if err != nil {
		return 0, "", err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return 0, "", err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.ca.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://localhost:%d%s", s.port, path), nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("X-Remote-User", user)
	request.Header.Set("X-Remote-Group", group)
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(body), err
}
