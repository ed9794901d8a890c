// Command fetch prints what an HTTP server answers. It runs in containers: `fetch http://...` is for any server, and
// `fetch /api/...` for the one of the cluster, as the service account of the pod.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	largest = 1 << 20
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: fetch URL|PATH")
	}
	url, token, transport := os.Args[1], "", &http.Transport{}
	if strings.HasPrefix(url, "/") {
		roots := x509.NewCertPool()
		ca, err := os.ReadFile(account + "ca.crt")
		if err != nil {
			return err
		}
		if !roots.AppendCertsFromPEM(ca) {
			return errors.New("ca.crt has no certificate")
		}
		text, err := os.ReadFile(account + "token")
		if err != nil {
			return err
		}
		token, transport.TLSClientConfig = string(text), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		url = "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")) + url
	}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, io.LimitReader(response.Body, largest)); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}
