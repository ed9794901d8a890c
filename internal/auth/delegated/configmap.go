package delegated

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/pki"
)

const (
	configMapNamespace = "kube-system"
	configMapName      = "extension-apiserver-authentication"
	configMaps         = "/api/v1/namespaces/" + configMapNamespace + "/configmaps"

	// Each watch lasts a minute and is followed by a read, which finds changes that the watch missed.
	pollInterval  = time.Minute
	maxWatchBytes = 64 << 20

	// warnInterval is the minimum interval between warnings about an unreadable ConfigMap.
	warnInterval = time.Minute
	// startPause is the pause between reads before the first success.
	startPause = time.Second
	// maxRefusals is the number of reads that the API server may refuse before Run fails.
	maxRefusals = 4
)

// configMap is a core/v1 ConfigMap reduced to data. Importing the Go type would add four megabytes to every extension
// server.
type configMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Data              map[string]string `json:"data"`
}

// Run reads the ConfigMap and then watches it until ctx ends. It returns an error if the first read fails, because
// without the ConfigMap there are no trusted authorities.
func (d *Delegated) Run(ctx context.Context) error {
	defer d.client.client.Close()
	version, err := d.waitForConfigMap(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	close(d.ready)
	d.follow(ctx, version)
	return nil
}

// waitForConfigMap waits until the front door serves the ConfigMap. A starting API server may refuse requests until
// it has read its RBAC objects, so only repeated refusals are final.
func (d *Delegated) waitForConfigMap(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.startTimeout)
	defer cancel()
	for refusals := 0; ; {
		cm, failed := d.get(ctx)
		if failed == nil {
			if err = d.apply(cm); err != nil {
				return "", err
			}
			return cm.ResourceVersion, nil
		}
		if err == nil || ctx.Err() == nil { // an attempt cut off by our deadline is less informative than the previous error
			err = failed
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			refusals++
		}
		if refusals == maxRefusals || pause(ctx, startPause) != nil {
			return "", withHint(err)
		}
	}
}

// withHint adds the next step for the operator to err.
func withHint(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nallow it with: kubectl create rolebinding -n %s ROLEBINDING_NAME "+
			"--role=extension-apiserver-authentication-reader --serviceaccount=YOUR_NAMESPACE:YOUR_ACCOUNT (or --user=YOUR_USER)",
			err, configMapNamespace)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; the front door does not accept the credentials of this kubeconfig", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; the front door publishes it once it runs with --client-ca-file or --requestheader-client-ca-file", err)
	}
	return fmt.Errorf("%w; is the front door of this kubeconfig running?", err)
}

func (d *Delegated) get(ctx context.Context) (*configMap, error) {
	cm := &configMap{}
	if err := d.client.call(ctx, http.MethodGet, configMaps+"/"+configMapName, nil, nil, cm); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", configMapNamespace, configMapName, err)
	}
	return cm, nil
}

// apply validates cm and puts it into effect.
func (d *Delegated) apply(cm *configMap) error {
	if now := d.current.Load(); now != nil && maps.Equal(now.data, cm.Data) {
		d.problem.Store(nil)
		return nil
	}
	p, err := parseConfigMap(cm)
	if err == nil {
		err = d.narrow(p)
	}
	if err != nil {
		err = fmt.Errorf("ConfigMap %s/%s: %w", configMapNamespace, configMapName, err)
		d.problem.Store(&err)
		return err
	}
	d.current.Store(p)
	d.problem.Store(nil)
	if shared := p.trust.Shared(); shared != nil {
		d.log.Warn("client CA and front-proxy CA overlap; only the allowed names prevent clients from acting as a front proxy",
			zap.Stringer("certificate", shared.Subject), zap.Strings("allowed", p.trust.FrontProxy.AllowedNames))
	}
	d.log.Info("loaded the authentication configuration of the front door",
		zap.Bool("clientCA", p.trust.Clients != nil), zap.Bool("frontProxy", p.trust.FrontProxy != nil))
	return nil
}

// update calls apply for a server that already has a configuration. If apply fails, the last valid configuration
// stays in effect.
func (d *Delegated) update(cm *configMap) {
	if err := d.apply(cm); err != nil {
		d.log.Error("failed to load the authentication configuration; the last valid one stays in use", zap.Error(err))
	}
}

func (d *Delegated) poll(ctx context.Context, version string) string {
	cm, err := d.get(ctx)
	if err != nil {
		if ctx.Err() == nil {
			// The first failure may be a restart of the front door. Longer outages are logged once a minute.
			if before := d.problem.Swap(&err); before == nil {
				d.warned = time.Now()
				d.log.Info("cannot read the authentication configuration of the front door; the last valid one stays in use", zap.Error(err))
			} else if time.Since(d.warned) >= warnInterval {
				d.warned = time.Now()
				d.log.Warn("cannot read the authentication configuration of the front door; the last valid one stays in use", zap.Error(err))
			}
		}
		return version
	}
	d.update(cm)
	return cm.ResourceVersion
}

type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch receives changes after version for one minute.
func (d *Delegated) watch(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, pollInterval+askTimeout)
	defer cancel()
	response, err := d.client.stream(ctx, configMaps, url.Values{
		"fieldSelector":   {"metadata.name=" + configMapName},
		"watch":           {"true"},
		"resourceVersion": {version},
		"timeoutSeconds":  {strconv.Itoa(int(pollInterval.Seconds()))},
	})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	events := json.NewDecoder(io.LimitReader(response.Body, maxWatchBytes))
	for {
		var event watchEvent
		if err := events.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read watch: %w", err)
		}
		if err := d.handleEvent(event); err != nil {
			return err
		}
	}
}

func (d *Delegated) handleEvent(event watchEvent) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		cm := &configMap{}
		if err := json.Unmarshal(event.Object, cm); err != nil {
			return fmt.Errorf("decode watch event: %w", err)
		}
		d.update(cm)
	case watch.Deleted:
		// The front door recreates the ConfigMap when it has grown too large. Until then its last content applies.
		d.log.Warn("the authentication ConfigMap was deleted; the last valid one stays in use")
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal(event.Object, status); err != nil {
			return fmt.Errorf("decode watch error: %w", err)
		}
		return &apierrors.StatusError{ErrStatus: *status}
	}
	return nil
}

// Keys of the ConfigMap, as written by kube-apiserver.
const (
	clientCAKey      = "client-ca-file"
	proxyCAKey       = "requestheader-client-ca-file"
	allowedNamesKey  = "requestheader-allowed-names"
	userHeadersKey   = "requestheader-username-headers"
	uidHeadersKey    = "requestheader-uid-headers"
	groupHeadersKey  = "requestheader-group-headers"
	extraPrefixesKey = "requestheader-extra-headers-prefix"
)

// published is the decoded and validated content of the ConfigMap. It is immutable.
type published struct {
	trust *authn.Trust
	pool  *x509.CertPool // both authorities, for the handshake
	// data is the source, kept to detect changes.
	data map[string]string
}

// parseConfigMap decodes and validates the ConfigMap.
func parseConfigMap(cm *configMap) (*published, error) {
	p := &published{trust: &authn.Trust{}, pool: x509.NewCertPool(), data: cm.Data}
	if text := cm.Data[clientCAKey]; text != "" {
		bundle, err := pki.StaticBundle([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", clientCAKey, err)
		}
		p.trust.Clients = bundle
		addAll(p.pool, bundle)
	}
	if text := cm.Data[proxyCAKey]; text != "" {
		proxy, err := readFrontProxy(cm.Data)
		if err != nil {
			return nil, err
		}
		p.trust.FrontProxy = proxy
		addAll(p.pool, proxy.Bundle)
	}
	if err := p.trust.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// narrow removes from p the authorities that the configuration of this server excludes.
func (d *Delegated) narrow(p *published) error {
	if d.distrust != nil && p.trust.FrontProxy != nil {
		var believed []byte
		for _, c := range p.trust.FrontProxy.Bundle.Certificates() {
			if !d.distrust(c) {
				believed = append(believed, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
			}
		}
		bundle, err := pki.StaticBundle(believed)
		if err != nil {
			return fmt.Errorf("%s: no authority is left that this server may believe: %w", proxyCAKey, err)
		}
		proxy := *p.trust.FrontProxy
		proxy.Bundle = bundle
		p.trust = &authn.Trust{Clients: p.trust.Clients, FrontProxy: &proxy}
	}
	if !d.proxyOnly {
		return nil
	}
	if p.trust.FrontProxy == nil {
		return fmt.Errorf("%s: is empty: the API server has no front proxy; it needs --requestheader-client-ca-file", proxyCAKey)
	}
	p.trust = &authn.Trust{FrontProxy: p.trust.FrontProxy}
	p.pool = x509.NewCertPool()
	addAll(p.pool, p.trust.FrontProxy.Bundle)
	return nil
}

func readFrontProxy(data map[string]string) (*authn.FrontProxy, error) {
	bundle, err := pki.StaticBundle([]byte(data[proxyCAKey]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", proxyCAKey, err)
	}
	proxy := &authn.FrontProxy{Bundle: bundle}
	for _, list := range []struct {
		key  string
		into *[]string
	}{
		{allowedNamesKey, &proxy.AllowedNames},
		{userHeadersKey, &proxy.Headers.Username},
		{uidHeadersKey, &proxy.Headers.UID},
		{groupHeadersKey, &proxy.Headers.Group},
		{extraPrefixesKey, &proxy.Headers.ExtraPrefix},
	} {
		text, ok := data[list.key]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), list.into); err != nil {
			return nil, fmt.Errorf("%s: %w", list.key, err)
		}
		if slices.Contains(*list.into, "") {
			// An empty extra prefix would turn every header into an identity. An empty name would match a certificate
			// without a name.
			return nil, fmt.Errorf("%s: an entry is empty", list.key)
		}
	}
	if len(proxy.Headers.Username) == 0 {
		return nil, errors.New(userHeadersKey + ": names no header")
	}
	return proxy, nil
}

func addAll(pool *x509.CertPool, b *pki.Bundle) {
	for _, c := range b.Certificates() {
		pool.AddCert(c)
	}
}
