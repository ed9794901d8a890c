package coreapi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"
)

// keyService is a KMS v2 plugin on a unix socket. A test starts and stops it.
type keyService struct {
	t      *testing.T
	socket string
	keyID  atomic.Value
	server *service.GRPCService
	ended  chan struct{}
}

func newKeyService(t *testing.T) *keyService {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the test's directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	k := &keyService{t: t, socket: filepath.Join(dir, "s")}
	k.keyID.Store("first")
	t.Cleanup(func() {
		k.stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

func (k *keyService) start() {
	k.server, k.ended = service.NewGRPCService(k.socket, time.Second, k), make(chan struct{})
	server, ended := k.server, k.ended
	go func() {
		defer close(ended)
		_ = server.ListenAndServe()
	}()
	eventually(k.t, func() error { _, err := os.Stat(k.socket); return err })
}

func (k *keyService) stop() {
	if k.server != nil {
		k.server.Close()
		<-k.ended
		k.server = nil
	}
}

// provider returns the service as an EncryptionConfiguration names it.
func (k *keyService) provider(timeout string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: keys, endpoint: 'unix://%s', timeout: %s}", k.socket, timeout)
}

func (k *keyService) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: k.keyID.Load().(string)}, nil
}

func (k *keyService) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	id := k.keyID.Load().(string)
	return &service.EncryptResponse{Ciphertext: scramble(id, data), KeyID: id}, nil
}

func (k *keyService) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	return scramble(r.KeyID, r.Ciphertext), nil
}

// scramble is its own inverse and offers no protection.
func scramble(key string, data []byte) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= key[i%len(key)] ^ 0x5a
	}
	return out
}

// eventually calls try until it succeeds.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(40 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
