package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portico.dev/internal/clients/clientstest"
)

func authority(t *testing.T, name string, notAfter time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func fixed(pem []byte) func() []byte { return func() []byte { return pem } }

func published(t *testing.T, client *fake.Clientset) map[string]string {
	t.Helper()
	m, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func existing(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: data,
	}
}

func TestTrustIsPublished(t *testing.T) {
	now := time.Now()
	old, current := authority(t, "old", now.Add(time.Hour)), authority(t, "current", now.Add(time.Hour))
	expired := authority(t, "expired", now.Add(-6*time.Minute))
	justExpired := authority(t, "just expired", now.Add(-4*time.Minute))
	config := Config{
		ClientCA: fixed(current), RequestHeaderCA: fixed(current),
		UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"},
		ExtraHeaderPrefixes: []string{"X-Remote-Extra-"}, AllowedNames: []string{"front-proxy-client"},
	}
	fresh := map[string]string{
		"client-ca-file": string(current), "requestheader-client-ca-file": string(current),
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		"requestheader-allowed-names": `["front-proxy-client"]`,
	}
	with := func(changes map[string]string) map[string]string {
		m := map[string]string{}
		for k, v := range fresh {
			m[k] = v
		}
		for k, v := range changes {
			m[k] = v
		}
		return m
	}
	tests := map[string]struct {
		before map[string]string // nil: no ConfigMap
		config Config
		want   map[string]string
	}{
		"nothing is there":           {nil, config, fresh},
		"it is there":                {fresh, config, fresh},
		"the ConfigMap is empty":     {map[string]string{}, config, fresh},
		"somebody added a key":       {with(map[string]string{"note": "hello"}), config, with(map[string]string{"note": "hello"})},
		"an older CA is there":       {with(map[string]string{"client-ca-file": string(old)}), config, with(map[string]string{"client-ca-file": string(old) + string(current)})},
		"one CA is there twice":      {with(map[string]string{"client-ca-file": string(current) + string(current)}), config, fresh},
		"an expired CA is there":     {with(map[string]string{"client-ca-file": string(expired)}), config, fresh},
		"a CA has just expired":      {with(map[string]string{"client-ca-file": string(justExpired)}), config, with(map[string]string{"client-ca-file": string(justExpired) + string(current)})},
		"the CA is garbage":          {with(map[string]string{"client-ca-file": "garbage"}), config, fresh},
		"another replica's names":    {with(map[string]string{"requestheader-allowed-names": `["other","front-proxy-client"]`}), config, with(map[string]string{"requestheader-allowed-names": `["other","front-proxy-client"]`})},
		"another replica's headers":  {with(map[string]string{"requestheader-group-headers": `["X-Group"]`}), config, with(map[string]string{"requestheader-group-headers": `["X-Group","X-Remote-Group"]`})},
		"a list is no list":          {with(map[string]string{"requestheader-group-headers": `X-Group`}), config, fresh},
		"no request header CA":       {nil, Config{ClientCA: fixed(current), AllowedNames: []string{"x"}}, map[string]string{"client-ca-file": string(current)}},
		"any name is allowed":        {nil, Config{RequestHeaderCA: fixed(current)}, map[string]string{"requestheader-client-ca-file": string(current), "requestheader-username-headers": "[]", "requestheader-group-headers": "[]", "requestheader-extra-headers-prefix": "[]", "requestheader-allowed-names": "[]"}},
		"it grew beyond all bounds":  {with(map[string]string{"junk": strings.Repeat("x", maxDataBytes)}), config, fresh},
		"no client CA but one there": {map[string]string{"client-ca-file": string(old)}, Config{}, map[string]string{"client-ca-file": string(old)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := clientstest.NewClientset()
			if tt.before != nil {
				client = clientstest.NewClientset(existing(tt.before))
			}
			p := NewPublisher(client, tt.config, zaptest.NewLogger(t))
			for range 2 { // the second call has no changes to write
				if err := p.Publish(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got := published(t, client)
			for key := range got {
				if got[key] != tt.want[key] {
					t.Errorf("%s = %s, want %s", key, got[key], tt.want[key])
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%d keys, want %d", len(got), len(tt.want))
			}
			writes := 0
			for _, a := range client.Actions() {
				if a.GetVerb() == "create" || a.GetVerb() == "update" {
					writes++
				}
			}
			if writes > 1 {
				t.Errorf("%d writes, want at most 1", writes)
			}
		})
	}
}

func TestTrustFollowsRotationAndIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := authority(t, "first", time.Now().Add(time.Hour)), authority(t, "second", time.Now().Add(time.Hour))
		var bundle atomic.Pointer[[]byte]
		bundle.Store(&first)
		client := clientstest.NewClientset()
		p := NewPublisher(client, Config{ClientCA: func() []byte { return *bundle.Load() }}, zaptest.NewLogger(t))
		if err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		settled(5 * time.Second)

		bundle.Store(&second)
		settled(10 * time.Second)
		if got, want := published(t, client)["client-ca-file"], string(bytes.Join([][]byte{first, second}, nil)); got != want {
			t.Errorf("client-ca-file after the rotation = %s, want %s", got, want)
		}
		if err := client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "extension-apiserver-authentication", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settled(time.Second)
		if got := published(t, client)["client-ca-file"]; got != string(second) {
			t.Errorf("client-ca-file after the deletion = %s, want %s", got, second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPublishSucceedsAfterConflict(t *testing.T) {
	client := clientstest.NewClientset(existing(nil))
	conflicts := 0
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts++
		return conflicts == 1, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "x", nil)
	})
	p := NewPublisher(client, Config{RequestHeaderCA: fixed(authority(t, "a", time.Now().Add(time.Hour)))}, zaptest.NewLogger(t))
	if err := p.Publish(t.Context()); err == nil {
		t.Fatal("Publish() with a conflict succeeded, want an error")
	}
	if err := p.Publish(t.Context()); err != nil || len(published(t, client)) == 0 {
		t.Errorf("second Publish() failed: %v, want no error and data", err)
	}
}

// settled lets d pass and waits until all work that is due in it is done.
func settled(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
