package serviceaccount

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/pki"
)

const issuer = "https://front.example"

// The keys of the tests are shared, because RSA keys are slow to generate.
var keys = sync.OnceValue(func() (k struct {
	rsa, otherRSA *rsa.PrivateKey
	ec, otherEC   *ecdsa.PrivateKey
}) {
	k.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	k.otherRSA, _ = rsa.GenerateKey(rand.Reader, 2048)
	k.ec, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.otherEC, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return k
})

func privateFile(t testing.TB, key crypto.Signer) string {
	t.Helper()
	data, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, data, 0o600)
}

func publicFile(t testing.TB, keys ...crypto.Signer) string {
	t.Helper()
	return file(t, publicPEM(t, keys...), 0o644)
}

func publicPEM(t testing.TB, keys ...crypto.Signer) []byte {
	t.Helper()
	var data []byte
	for _, k := range keys {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return data
}

func file(t testing.TB, data []byte, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	return name
}

// objects is a Lookup on a map from "kind/namespace/name".
type objects map[string]metav1.Object

func (o objects) find(resource, namespace, name string) (metav1.Object, error) {
	if found, ok := o[resource+"/"+namespace+"/"+name]; ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (o objects) GetServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	found, err := o.find("serviceaccounts", namespace, name)
	if err != nil {
		return nil, err
	}
	return found.(*corev1.ServiceAccount), nil
}

func (o objects) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	found, err := o.find("pods", namespace, name)
	if err != nil {
		return nil, err
	}
	return found.(*corev1.Pod), nil
}

func (o objects) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	found, err := o.find("secrets", namespace, name)
	if err != nil {
		return nil, err
	}
	return found.(*corev1.Secret), nil
}

func (o objects) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	found, err := o.find("nodes", "", name)
	if err != nil {
		return nil, err
	}
	return found.(*corev1.Node), nil
}

func cluster() objects {
	named := func(name, uid string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, UID: types.UID(uid)} }
	return objects{
		"serviceaccounts/ns/robot": &corev1.ServiceAccount{ObjectMeta: named("robot", "sa-1")},
		"serviceaccounts/ns/other": &corev1.ServiceAccount{ObjectMeta: named("other", "sa-2")},
		"pods/ns/pod": &corev1.Pod{ObjectMeta: named("pod", "pod-1"),
			Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "node"}},
		"secrets/ns/secret": &corev1.Secret{ObjectMeta: named("secret", "secret-1")},
		"nodes//node":       &corev1.Node{ObjectMeta: named("node", "node-1")},
	}
}

func newTokens(t testing.TB, change ...func(*Config)) *Tokens {
	t.Helper()
	cfg := Config{
		Issuer:         issuer,
		Audiences:      []string{"api"},
		SigningKeyFile: privateFile(t, keys().ec),
		VerifyKeyFiles: []string{publicFile(t, keys().rsa)},
		Lookup:         cluster(),
	}
	for _, c := range change {
		c(&cfg)
	}
	tokens, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func keyID(t testing.TB, key crypto.Signer) string {
	t.Helper()
	k, err := newVerifyKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return k.id
}

// body returns the claims of a valid token. Each pair replaces one text by another.
func body(replace ...string) string {
	now := time.Now()
	text := `{"iss":"` + issuer + `","sub":"system:serviceaccount:ns:robot","aud":["api"],"exp":EXP,"nbf":NBF,"iat":NBF,"jti":"id-1",` +
		`"kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"robot","uid":"sa-1"}}}`
	return strings.NewReplacer(append(replace,
		"EXP", unix(now.Add(time.Hour)),
		"NBF", unix(now))...).Replace(text)
}
