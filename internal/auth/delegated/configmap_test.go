package delegated

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/auth/authtest"
)

func TestStartRequiresValidConfigMap(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ca := newAuthorities(t)
	without := func(key string) map[string]string {
		data := ca.published()
		delete(data, key)
		return data
	}
	and := func(key, value string, names ...string) map[string]string {
		data := maps.Clone(ca.published(names...))
		data[key] = value
		return data
	}
	tests := []struct {
		name    string
		data    map[string]string
		code    int
		wantErr string // empty: the server starts
	}{
		{name: "as published", data: ca.published("front-proxy-client")},
		{name: "any name from a CA of its own", data: ca.published()},
		{name: "no front proxy", data: without(proxyCAKey)},
		{name: "no client CA", data: without(clientCAKey)},
		{name: "A12 one CA for both and any name", data: and(proxyCAKey, string(ca.clients.PEM())), wantErr: "--requestheader-allowed-names"},
		{name: "A12 one CA for both, listed by name", data: and(proxyCAKey, string(ca.clients.PEM()), "front-proxy-client")},
		{name: "A12 cross-signed", data: and(clientCAKey, string(authtest.PEM(ca.proxies.CrossSign(t, ca.clients)))), wantErr: "overlap"},
		{name: "A13 there is none", data: nil, wantErr: "the front door publishes it"},
		{name: "A13 it may not be read", data: ca.published(), code: http.StatusForbidden,
			wantErr: "kubectl create rolebinding -n kube-system ROLEBINDING_NAME --role=extension-apiserver-authentication-reader"},
		{name: "A13 the credentials are not good", data: ca.published(), code: http.StatusUnauthorized, wantErr: "does not accept the credentials"},
		{name: "A14 the client CA is damaged", data: and(clientCAKey, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), wantErr: clientCAKey},
		{name: "A14 the front-proxy CA is garbage", data: and(proxyCAKey, "garbage"), wantErr: proxyCAKey},
		{name: "a list that is no list", data: and(allowedNamesKey, `"front-proxy"`), wantErr: allowedNamesKey},
		{name: "an empty prefix", data: and(extraPrefixesKey, `[""]`), wantErr: extraPrefixesKey},
		{name: "an empty allowed name", data: and(allowedNamesKey, `[""]`), wantErr: allowedNamesKey},
		{name: "no user header", data: without(userHeadersKey), wantErr: userHeadersKey},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := openFrontDoor(t, tt.data)
			f.refuse = func(*http.Request) int { return tt.code }
			if tt.wantErr == "" {
				start(t, f)
				return
			}
			timeout := 30 * time.Second
			if tt.data == nil { // the only case that is retried
				timeout = 5 * time.Second // enough for one response, on a busy machine too
			}
			d, err := New(Config{Client: f.kubeconfig(), Logger: zap.NewNop(), StartTimeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Fatalf("Run() error = %v, want an error that contains %q", err, tt.wantErr)
			}
			if _, err := d.AuthenticateRequest(&http.Request{Header: http.Header{}}); err == nil {
				t.Fatal("AuthenticateRequest of a server that did not start succeeded, want an error")
			}
		})
	}
}

// The error contains the front door's last response, not the timeout of the last attempt.
func TestStartErrorContainsLastResponse(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := openFrontDoor(t, nil)
	asked := 0
	f.refuse = func(r *http.Request) int {
		if asked++; asked > 1 {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // an empty response could still arrive
		}
		return 0
	}
	d, err := New(Config{Client: f.kubeconfig(), Logger: zap.NewNop(), StartTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the front door publishes it") {
		t.Fatalf("Run() error = %v, want an error that contains the front door's response", err)
	}
}

func TestStartWaitsForConfigMap(t *testing.T) {
	t.Parallel()
	f := openFrontDoor(t, nil)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for f.count(configMaps+"/"+configMapName) == 0 {
			<-time.After(time.Millisecond)
		}
		f.publish(newAuthorities(t).published())
	}()
	start(t, f)
	<-published
}

func TestConfigMapChangesTakeEffect(t *testing.T) {
	before, after := newAuthorities(t), newAuthorities(t)
	f := openFrontDoor(t, before.published("front-proxy-client"))
	r := start(t, f)
	stated := http.Header{"X-Remote-User": {"alice"}}
	believes := func(ca authorities) bool {
		return r.knock(t, ca.proxies.Client(t, "front-proxy-client"), stated).Name == "alice"
	}
	if !believes(before) || believes(after) {
		t.Fatal("front proxies at the start: want the published CA accepted, and another one rejected")
	}
	<-f.watching

	f.publish(after.published("front-proxy-client"))
	eventually(t, "the new authorities are in force", func() bool { return believes(after) })
	if believes(before) {
		t.Error("front proxy of the replaced CA is accepted, want it rejected")
	}

	damaged := after.published("front-proxy-client")
	damaged[clientCAKey] = "garbage"
	f.publish(damaged)
	eventually(t, "readyz is told about the damage", func() bool { return r.d.Stale() != nil })
	if !believes(after) {
		t.Error("A14: front proxy of the last good CA is rejected after a damaged ConfigMap, want it accepted")
	}

	overlapping := after.published()
	overlapping[proxyCAKey] = overlapping[clientCAKey]
	f.publish(overlapping)
	eventually(t, "A12 the overlap is reported", func() bool {
		return r.d.Stale() != nil && strings.Contains(r.d.Stale().Error(), "overlap")
	})
	if got := r.knock(t, after.clients.Client(t, "carol"), stated); got.Name != "carol" {
		t.Errorf("A12: user of a client certificate with identity headers = %s, want carol", got.who())
	}

	f.publish(nil)
	eventually(t, "the deletion is seen", func() bool { return r.logs.FilterMessageSnippet("was deleted").Len() > 0 })
	if !believes(after) {
		t.Error("front proxy of the last good CA is rejected after the ConfigMap was deleted, want it accepted")
	}
}

func TestConfigMapIsPolledWithoutWatchPermission(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	before, after := newAuthorities(t), newAuthorities(t)
	f := openFrontDoor(t, before.published())
	f.refuse = func(r *http.Request) int {
		if r.URL.Path == configMaps {
			return http.StatusForbidden
		}
		return 0
	}
	r := start(t, f)
	f.publish(after.published())
	eventually(t, "a read finds the change", func() bool {
		return r.knock(t, after.proxies.Client(t, "x"), http.Header{"X-Remote-User": {"alice"}}).Name == "alice"
	})
}
