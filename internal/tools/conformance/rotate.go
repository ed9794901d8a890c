package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/pki"
)

const (
	authenticationPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	proxyCAKey         = "requestheader-client-ca-file"
	proxyNamesKey      = "requestheader-allowed-names"
)

// rotation publishes an additional authority, like a rotation with overlap, and removes it again.
func rotation(ctx context.Context, x *examination) verdict {
	switch {
	case !x.cfg.Rotate:
		return notApplicable("it changes kube-system/extension-apiserver-authentication: --rotate")
	case x.server == nil:
		return notApplicable("%s", x.whyNoServer)
	}
	path, none := x.guarded()
	if none != nil {
		return *none
	}
	authority, err := pki.NewAuthority(nothing)
	if err != nil {
		return notApplicable("%v", err)
	}
	names, err := x.publish(ctx, func(bundle []byte) []byte { return append(append(bytes.TrimSpace(bundle), '\n'), authority.PEM()...) })
	if err != nil {
		return notApplicable("the authority cannot be published: %v", err)
	}
	v := x.awaitTrust(ctx, path, authority, names)
	// The removal must run regardless of the outcome, and even if ctx has ended.
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.cfg.Timeout)
	defer cancel()
	if _, err := x.publish(back, func(bundle []byte) []byte { return bytes.ReplaceAll(bundle, authority.PEM(), nil) }); err != nil {
		return failed("the authority %s is still published and has to be taken back by hand: %v", nothing, err)
	}
	return v(ctx)
}

// awaitTrust waits until the server trusts the authority. It returns a function that waits until the server no longer
// trusts it.
func (x *examination) awaitTrust(ctx context.Context, path string, authority *pki.Authority, names []string) func(context.Context) verdict {
	name := "front-proxy-client"
	if len(names) > 0 {
		name = names[0]
	}
	proxy, err := proxyOf(authority, name)
	if err != nil {
		return func(context.Context) verdict { return notApplicable("%v", err) }
	}
	believed := func(ctx context.Context, want bool) bool {
		return x.within(ctx, func() bool {
			a := x.asOther(ctx, path, proxy, masters())
			return a.is(http.StatusOK) == want
		})
	}
	if !believed(ctx, true) {
		return func(context.Context) verdict {
			return failed("%s after it was published, the authority does not count", x.cfg.RotateTimeout)
		}
	}
	return func(ctx context.Context) verdict {
		if !believed(ctx, false) {
			return failed("%s after it was taken back, the authority still counts", x.cfg.RotateTimeout)
		}
		return ok
	}
}

// within polls until yes returns true, for at most RotateTimeout.
func (x *examination) within(ctx context.Context, yes func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.RotateTimeout)
	defer cancel()
	tick := time.NewTicker(min(time.Second, x.cfg.RotateTimeout/10))
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// publish updates the front-proxy authorities. It returns the names that are allowed in front-proxy certificates.
func (x *examination) publish(ctx context.Context, change func([]byte) []byte) (names []string, err error) {
	for range tries { // retry on conflicts
		var published corev1.ConfigMap
		if err := x.front.get(ctx, authenticationPath).into(&published); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(published.Data[proxyNamesKey]), &names); err != nil {
			return nil, fmt.Errorf("read %s: %w", proxyNamesKey, err)
		}
		published.Data[proxyCAKey] = string(change([]byte(published.Data[proxyCAKey])))
		published.APIVersion, published.Kind = "v1", "ConfigMap"
		body, err := json.Marshal(published)
		if err != nil {
			return nil, err
		}
		a := x.front.do(ctx, question{method: http.MethodPut, path: authenticationPath, body: body})
		if a.is(http.StatusConflict) {
			continue
		}
		return names, a.into(&published)
	}
	return nil, errors.New("others keep changing it")
}
