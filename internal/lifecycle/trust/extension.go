package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
)

// Names of the ConfigMap that every extension server reads and watches. They are compiled into k8s.io/apiserver.
const (
	configMapName = "extension-apiserver-authentication"

	clientCAKey          = "client-ca-file"
	requestHeaderCAKey   = "requestheader-client-ca-file"
	usernameHeadersKey   = "requestheader-username-headers"
	uidHeadersKey        = "requestheader-uid-headers"
	groupHeadersKey      = "requestheader-group-headers"
	extraHeaderPrefixKey = "requestheader-extra-headers-prefix"
	allowedNamesKey      = "requestheader-allowed-names"
)

// maxDataBytes bounds the size of the ConfigMap. Storage would refuse a larger object, and therefore every later rotation.
const maxDataBytes = 1 << 20

// Config contains the trust data for extension servers. The two bundles may change while in use.
type Config struct {
	// ClientCA returns the PEM bundle that verifies client certificates. If nil, none is published.
	ClientCA func() []byte
	// RequestHeaderCA returns the PEM bundle that verifies the front door's client certificate. If nil, neither the bundle nor
	// the header names are published.
	RequestHeaderCA func() []byte
	// UsernameHeaders, UIDHeaders, GroupHeaders and ExtraHeaderPrefixes name the headers in which the front proxy passes the
	// authenticated user.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
	// AllowedNames are the permitted common names of the front door's certificate. Danger: an empty list permits every name
	// signed by RequestHeaderCA.
	AllowedNames []string
}

// Publisher writes the ConfigMap kube-system/extension-apiserver-authentication.
//
// It preserves published data: during a rotation the old and the new CA overlap, and a replica with other settings must not
// remove the data published by this one. It drops only expired certificates.
type Publisher struct {
	client clients.Interface
	config Config
	now    func() time.Time
	log    *zap.Logger
}

// NewPublisher returns a Publisher that is idle until Run.
func NewPublisher(client clients.Interface, cfg Config, log *zap.Logger) *Publisher {
	return &Publisher{client: client, config: cfg, now: time.Now, log: log}
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	informer := reconcile.NewInformer(p.client, p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem), &corev1.ConfigMap{}, configMapName)
	l := &reconcile.Loop{
		Name: "extension-authentication", Workers: 1, Log: p.log,
		// The bundles are compared at this interval. Extension servers watch the ConfigMap, so a rotation reaches them
		// immediately.
		Resync:    10 * time.Second,
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return 0, p.Publish(ctx) },
	}
	return l.Run(ctx, reconcile.Source{Informer: informer, Key: reconcile.NamespaceOf, Owned: true})
}

// Publish updates the ConfigMap if it is outdated.
func (p *Publisher) Publish(ctx context.Context) error {
	own, err := p.config.data()
	if err != nil {
		return err
	}
	configMaps := p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	current, err := configMaps.Get(ctx, configMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: configMapName, Namespace: metav1.NamespaceSystem},
			Data:       own,
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create configmap %s: %w", configMapName, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get configmap %s: %w", configMapName, err)
	}
	want := p.merge(current.Data, own)
	if maps.Equal(current.Data, want) {
		return nil
	}
	updated := current.DeepCopy()
	updated.Data = want
	if _, err := configMaps.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update configmap %s: %w", configMapName, err)
	}
	p.log.Info("published the authentication ConfigMap for extension servers", zap.String("configmap", metav1.NamespaceSystem+"/"+configMapName))
	return nil
}

// data returns the data of this replica alone.
func (c Config) data() (map[string]string, error) {
	data := map[string]string{}
	if c.ClientCA != nil {
		data[clientCAKey] = string(c.ClientCA())
	}
	if c.RequestHeaderCA == nil {
		return data, nil
	}
	data[requestHeaderCAKey] = string(c.RequestHeaderCA())
	lists := map[string][]string{
		usernameHeadersKey:   c.UsernameHeaders,
		groupHeadersKey:      c.GroupHeaders,
		extraHeaderPrefixKey: c.ExtraHeaderPrefixes,
		allowedNamesKey:      c.AllowedNames,
	}
	if len(c.UIDHeaders) > 0 {
		// Write this key only if the header is configured, as kube-apiserver does: extension servers before 1.33 do not support
		// it.
		lists[uidHeadersKey] = c.UIDHeaders
	}
	for key, list := range lists {
		encoded, err := json.Marshal(append([]string{}, list...)) // an empty list is [], never null
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = string(encoded)
	}
	return data, nil
}

// expiredFor is how long an expired certificate is still published, to tolerate clock skew.
const expiredFor = 5 * time.Minute

// merge merges the published data with the data of this replica. Unknown keys are not changed.
func (p *Publisher) merge(current, own map[string]string) map[string]string {
	merged := maps.Clone(current)
	if merged == nil {
		merged = map[string]string{}
	}
	for key, value := range own {
		if key == clientCAKey || key == requestHeaderCAKey {
			merged[key] = p.mergeCertificates(key, current[key], value)
		} else {
			merged[key] = p.mergeList(key, current[key], value)
		}
	}
	if size(merged) > maxDataBytes {
		p.log.Warn("published data is too large; replacing it with the data of this server", zap.Int("bytes", size(merged)))
		return own
	}
	return merged
}

func (p *Publisher) mergeCertificates(key, current, own string) string {
	var kept []*x509.Certificate
	oldest := p.now().Add(-expiredFor)
	for _, bundle := range []string{current, own} {
		if bundle == "" {
			continue
		}
		certs, err := cert.ParseCertsPEM([]byte(bundle))
		if err != nil {
			p.log.Warn("dropping a CA bundle that does not parse", zap.String("key", key), zap.Error(err))
		}
		for _, c := range certs {
			if c.NotAfter.After(oldest) && !slices.ContainsFunc(kept, c.Equal) {
				kept = append(kept, c)
			}
		}
	}
	var out bytes.Buffer
	for _, c := range kept {
		// Writing to a buffer cannot fail
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return out.String()
}

// mergeList returns the union, as kube-apiserver does. An exception are allowed names: the empty list, which permits any name,
// does not replace a published list of names, so that the stricter value wins.
func (p *Publisher) mergeList(key, current, own string) string {
	var before, ours []string
	if current != "" {
		if err := json.Unmarshal([]byte(current), &before); err != nil {
			p.log.Warn("replacing a value that is not a list", zap.String("key", key), zap.Error(err))
		}
	}
	if err := json.Unmarshal([]byte(own), &ours); err != nil {
		return current
	}
	union := []string{}
	for _, s := range append(before, ours...) {
		if !slices.Contains(union, s) {
			union = append(union, s)
		}
	}
	encoded, err := json.Marshal(union)
	if err != nil {
		return current
	}
	return string(encoded)
}

func size(data map[string]string) int {
	n := 0
	for k, v := range data {
		n += len(k) + len(v)
	}
	return n
}
