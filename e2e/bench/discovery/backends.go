package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

const (
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	resourcesEach  = 5
)

func groupName(i int) string { return fmt.Sprintf("group-%04d.example.com", i) }

// backends holds the extension servers: one listener for all healthy ones, which are distinguished by host name, and
// one for all that hang.
type backends struct {
	alive, hung net.Listener
	dead        string // an address without a listener
	server      *http.Server
	running     sync.WaitGroup
}

func startBackends(certificate *pki.KeyPair) (*backends, error) {
	b := &backends{}
	var err error
	if b.alive, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if b.hung, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.dead = free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	b.server = &http.Server{Handler: http.HandlerFunc(answer), TLSConfig: pki.ServerConfig(certificate)}
	b.running.Go(func() { _ = b.server.ServeTLS(b.alive, "", "") }) // ends with close
	b.running.Go(b.hang)
	return b, nil
}

func (b *backends) close() error {
	err := errors.Join(b.server.Shutdown(context.Background()), b.hung.Close())
	b.running.Wait()
	return err
}

// hang accepts connections and reads from them, but never responds.
func (b *backends) hang() {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		connection, err := b.hung.Accept()
		if err != nil {
			return
		}
		open.Go(func() {
			defer connection.Close()
			_, _ = io.Copy(io.Discard, connection) // until the client closes it
		})
	}
}

// answer serves the documents of a healthy backend. They have ETags and never change.
func answer(w http.ResponseWriter, r *http.Request) {
	group, _, _ := strings.Cut(r.Host, ":")
	w.Header().Set("ETag", `"1"`)
	if r.Header.Get("If-None-Match") == `"1"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	path := "apis/" + group + "/v1"
	switch r.URL.Path {
	case "/apis":
		w.Header().Set("Content-Type", aggregatedType)
		_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
			Items: []apidiscoveryv2.APIGroupDiscovery{{
				ObjectMeta: metav1.ObjectMeta{Name: group},
				Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: resources(group), Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}},
			}},
		})
	case "/openapi/v3":
		_, _ = fmt.Fprintf(w, `{"paths":{%q:{"serverRelativeURL":"/openapi/v3/%s?hash=1"}}}`, path, path)
	case "/openapi/v3/" + path:
		_, _ = fmt.Fprintf(w, `{"openapi":"3.0.0","info":{"title":%q,"version":"1"},"paths":{"/%s/resources0":{"get":{"responses":{"200":{"description":"OK"}}}}}}`, group, path)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func resources(group string) []apidiscoveryv2.APIResourceDiscovery {
	list := make([]apidiscoveryv2.APIResourceDiscovery, resourcesEach)
	for i := range list {
		list[i] = apidiscoveryv2.APIResourceDiscovery{
			Resource: fmt.Sprintf("resources%d", i), SingularResource: fmt.Sprintf("resource%d", i), Scope: apidiscoveryv2.ScopeNamespace,
			ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: fmt.Sprintf("Resource%d", i)},
			Verbs:        []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		}
	}
	return list
}
