package gateway

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
)

const (
	// keysSecret contains the authorities, which all replicas share. Each replica creates its certificates, only in
	// memory.
	keysSecret = "portico-gateway-keys"

	authorityTTL = 365 * 24 * time.Hour
	leafTTL      = 30 * 24 * time.Hour
	// publicationTime is how long a new authority is published before it signs: extension servers read the ConfigMap
	// within a minute, and API servers the caBundle at once.
	publicationTime = time.Hour
	// overlap is how long an authority stays published after its last signature. Every replica has a new certificate
	// within readInterval.
	overlap = 24 * time.Hour
	// readInterval is how often each replica reads the Secret.
	readInterval = 30 * time.Second
	keysTimeout  = 10 * time.Second
)

// keys contains the two authorities of a gateway, and this replica's certificates from them. The leader creates and
// replaces authorities:
//
//	next      a new authority joins the bundle; the present one signs
//	switch    after publicationTime the new one signs
//	previous  after overlap the old one leaves the bundle
//
// Only the state in the Secret counts, so that other replicas and restarts continue from it.
type keys struct {
	secrets typedcorev1.SecretInterface
	gateway adoption.Service
	leads   func() bool
	// published reports whether all components that must trust a bundle have received it. An authority does not sign
	// before.
	published func(bundle []byte) bool
	changed   func() // called when a bundle changes
	log       *zap.Logger

	serving, client *pki.KeyPair
	ready           chan struct{}

	mu                  sync.Mutex // guards the fields below
	servingCA, clientCA []byte     // bundles, in PEM
}

// newKeys returns keys with certificates that are not trusted yet.
func newKeys(secrets typedcorev1.SecretInterface, gateway adoption.Service, leads func() bool, log *zap.Logger) (*keys, error) {
	k := &keys{secrets: secrets, gateway: gateway, leads: leads, log: log, ready: make(chan struct{})}
	k.published, k.changed = func([]byte) bool { return true }, func() {}
	unknown, err := pki.NewAuthorityFor("starting", time.Hour)
	if err != nil {
		return nil, err
	}
	cert, key, err := unknown.Issue(k.servingLeaf())
	if err != nil {
		return nil, err
	}
	if k.serving, err = pki.StaticKeyPair(cert, key); err != nil {
		return nil, err
	}
	if cert, key, err = unknown.Issue(k.clientLeaf()); err != nil {
		return nil, err
	}
	k.client, err = pki.StaticKeyPair(cert, key)
	return k, err
}

func (k *keys) servingLeaf() pki.Leaf {
	name := k.gateway.ServerName()
	return pki.Leaf{CommonName: name, DNSNames: []string{name, name + ".cluster.local"}, Server: true, TTL: leafTTL}
}

func (k *keys) clientLeaf() pki.Leaf {
	return pki.Leaf{CommonName: k.gateway.FrontProxyName(), Client: true, TTL: leafTTL}
}

// servingBundle returns the bundle that verifies the serving certificates of all replicas. clientBundle returns the
// bundle for their front-proxy certificates.
func (k *keys) servingBundle() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.servingCA
}

func (k *keys) clientBundle() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.clientCA
}

// ours reports whether c is an authority of this gateway's front-proxy certificates.
func (k *keys) ours(c *x509.Certificate) bool { return k.gateway.IsFrontProxyAuthority(c) }

// Run keeps the certificates up to date until ctx ends.
func (k *keys) Run(ctx context.Context) error {
	isReady := false
	for {
		err := k.sync(ctx)
		switch {
		case err == nil && !isReady:
			isReady = true
			close(k.ready)
		case err != nil && ctx.Err() == nil:
			k.log.Warn("failed to read or write the keys of the gateway; retrying", zap.String("secret", keysSecret), zap.Error(err))
		}
		pause := readInterval
		if !isReady {
			pause = time.Second
		}
		if !run.Pause(ctx, pause) {
			return nil
		}
	}
}

// sync reads the Secret, makes due changes if this replica leads, and applies the result.
func (k *keys) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	secret, err := k.secrets.Get(ctx, keysSecret, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	if absent {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: keysSecret}}
	}
	after := secret.DeepCopy()
	serving, err := k.advance(after, "serving", k.gateway.ServingAuthorityName())
	if err != nil {
		return err
	}
	client, err := k.advance(after, "front-proxy", k.gateway.FrontProxyAuthorityName())
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(secret.Data, after.Data) {
		if !k.leads() && len(secret.Data) > 0 {
			return nil // only the leader writes
		}
		if absent {
			_, err = k.secrets.Create(ctx, after, metav1.CreateOptions{})
		} else {
			_, err = k.secrets.Update(ctx, after, metav1.UpdateOptions{}) // refused if another replica was first
		}
		if err != nil {
			return err
		}
	}
	return k.use(serving, client)
}

// advance makes the due changes of one authority, in the data of the Secret.
func (k *keys) advance(secret *corev1.Secret, name, commonName string) (*authorities, error) {
	a, err := readAuthorities(secret.Data, name)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", keysSecret, err)
	}
	if err := a.advance(time.Now(), commonName, k.published); err != nil {
		return nil, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return a, a.write(secret.Data, name)
}

// use issues certificates from the authorities, unless the current ones are good.
func (k *keys) use(serving, client *authorities) error {
	err := errors.Join(
		renew(k.serving, serving.present, k.servingLeaf()),
		renew(k.client, client.present, k.clientLeaf()),
	)
	k.mu.Lock()
	differs := !bytes.Equal(k.servingCA, serving.bundle()) || !bytes.Equal(k.clientCA, client.bundle())
	k.servingCA, k.clientCA = serving.bundle(), client.bundle()
	k.mu.Unlock()
	if differs {
		k.changed()
	}
	return err
}

// renew replaces a certificate that another authority signed, or that is past two thirds of its lifetime.
func renew(pair *pki.KeyPair, by *pki.Authority, leaf pki.Leaf) error {
	have := pair.Leaf()
	if have.CheckSignatureFrom(by.Certificate) == nil && time.Now().Before(due(have)) {
		return nil
	}
	cert, key, err := by.Issue(leaf)
	if err != nil {
		return err
	}
	return pair.Set(cert, key)
}

// due returns the time after two thirds of the lifetime of a certificate.
func due(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// authorities contains one authority, the next one, and the previous one.
type authorities struct {
	present, next *pki.Authority
	nextCreated   time.Time // when next was created
	previous      *x509.Certificate
	until         time.Time // when previous leaves the bundle
}

// advance creates, replaces and drops authorities when they are due.
func (a *authorities) advance(now time.Time, commonName string, published func(bundle []byte) bool) (err error) {
	if a.present == nil || now.After(a.present.Certificate.NotAfter) {
		*a = authorities{}
		a.present, err = pki.NewAuthorityFor(commonName, authorityTTL)
		return err
	}
	if a.previous != nil && now.After(a.until) {
		a.previous = nil
	}
	switch {
	case a.next != nil && now.After(a.nextCreated.Add(publicationTime)) && published(a.bundle()):
		a.previous, a.until = a.present.Certificate, now.Add(overlap)
		a.present, a.next = a.next, nil
	case a.next == nil && now.After(due(a.present.Certificate)):
		a.next, err = pki.NewAuthorityFor(commonName, authorityTTL)
		a.nextCreated = now
	}
	return err
}

// bundle returns all certificates that clients and servers must trust.
func (a *authorities) bundle() []byte {
	out := bytes.Clone(a.present.PEM())
	if a.next != nil {
		out = append(out, a.next.PEM()...)
	}
	if a.previous != nil {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.previous.Raw})...)
	}
	return out
}

// Suffixes of the keys in the Secret, after the name of the authority.
const (
	presentCert, presentKey          = "-ca.crt", "-ca.key"
	nextCert, nextKey, nextSince     = "-ca-next.crt", "-ca-next.key", "-ca-next.since"
	previousCert, previousUntilField = "-ca-previous.crt", "-ca-previous.until"
)

func readAuthorities(data map[string][]byte, name string) (*authorities, error) {
	a := &authorities{}
	var err error
	if a.present, err = readAuthority(data, name+presentCert, name+presentKey); err != nil {
		return nil, err
	}
	if a.next, err = readAuthority(data, name+nextCert, name+nextKey); err != nil {
		return nil, err
	}
	if a.next != nil {
		if a.nextCreated, err = time.Parse(time.RFC3339, string(data[name+nextSince])); err != nil {
			return nil, fmt.Errorf("%s: %w", name+nextSince, err)
		}
	}
	if len(data[name+previousCert]) > 0 {
		certs, err := pki.ParseBundle(data[name+previousCert])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name+previousCert, err)
		}
		a.previous = certs[0]
		if a.until, err = time.Parse(time.RFC3339, string(data[name+previousUntilField])); err != nil {
			return nil, fmt.Errorf("%s: %w", name+previousUntilField, err)
		}
	}
	return a, nil
}

func readAuthority(data map[string][]byte, cert, key string) (*pki.Authority, error) {
	if len(data[cert]) == 0 {
		return nil, nil
	}
	a, err := pki.ParseAuthority(data[cert], data[key])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cert, err)
	}
	return a, nil
}

// write stores the authorities in data, and leaves unchanged values byte for byte.
func (a *authorities) write(data map[string][]byte, name string) error {
	if err := writeAuthority(data, a.present, name+presentCert, name+presentKey); err != nil {
		return err
	}
	if err := writeAuthority(data, a.next, name+nextCert, name+nextKey); err != nil {
		return err
	}
	writeTime(data, name+nextSince, a.nextCreated, a.next != nil)
	delete(data, name+previousCert)
	if a.previous != nil {
		data[name+previousCert] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.previous.Raw})
	}
	writeTime(data, name+previousUntilField, a.until, a.previous != nil)
	return nil
}

func writeAuthority(data map[string][]byte, a *pki.Authority, cert, key string) error {
	if a == nil {
		delete(data, cert)
		delete(data, key)
		return nil
	}
	if bytes.Equal(data[cert], a.PEM()) {
		return nil
	}
	encoded, err := a.KeyPEM()
	if err != nil {
		return err
	}
	data[cert], data[key] = a.PEM(), encoded
	return nil
}

func writeTime(data map[string][]byte, key string, t time.Time, set bool) {
	if !set {
		delete(data, key)
		return
	}
	data[key] = []byte(t.UTC().Format(time.RFC3339))
}
