package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
)

// keyPair contains the file names of a serving certificate and its key.
type keyPair struct{ certFile, keyFile string }

// servingPair returns the files of the serving certificate in certDir, with the file names of kube-apiserver. If both
// are missing, it writes a self-signed one, for host and this machine. An empty certDir means own.
func servingPair(certDir, own, host string) (keyPair, error) {
	certDir = cmp.Or(certDir, own)
	pair := keyPair{filepath.Join(certDir, "apiserver.crt"), filepath.Join(certDir, "apiserver.key")}
	cert, err := exists(pair.certFile)
	if err != nil {
		return pair, err
	}
	key, err := exists(pair.keyFile)
	if err != nil || cert && key {
		return pair, err
	}
	if cert != key {
		return pair, fmt.Errorf("--cert-dir: %s has one of apiserver.crt and apiserver.key; add the other, or remove it", certDir)
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	})
	if err != nil {
		return pair, fmt.Errorf("make a serving certificate: %w", err)
	}
	if err := certutil.WriteCert(pair.certFile, certPEM); err != nil {
		return pair, fmt.Errorf("write the serving certificate: %w", err)
	}
	if err := os.WriteFile(pair.keyFile, keyPEM, 0o600); err != nil {
		return pair, fmt.Errorf("write the key of the serving certificate: %w", err)
	}
	return pair, nil
}

func exists(file string) (bool, error) {
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
