package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/openapidocs/build"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/run"
	"portico.dev/internal/store"
)

// discover runs the local groups with etcd in a temporary directory and returns their discovery.
func discover(ctx context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	dir, err := os.MkdirTemp("", "openapidocs")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the error is irrelevant
	storage, err := store.New(store.Config{DataDir: dir})
	if err != nil {
		return nil, err
	}
	everything, err := coreapi.ParseRuntimeConfig(map[string]string{"api/all": "true"}, cluster.All())
	if err != nil {
		return nil, err
	}
	nobody := authorizerfactory.NewAlwaysDenyAuthorizer()
	server, err := coreapi.New(coreapi.Config{
		Store: storage, Authorizer: nobody, RuleResolver: nobody, TokenIssuer: noTokens{}, Groups: cluster.All(), RuntimeConfig: everything,
		BuildDocument: build.Document, // a new group-version has no prepared document
	})
	if err != nil {
		return nil, err
	}
	var groups run.Group
	groups.Add(run.Member{Name: "storage", Run: storage.Run, Ready: storage.Ready()})
	groups.Add(run.Member{Name: "local groups", Run: server.Run, Ready: server.Ready()})

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- groups.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-done:
		return nil, fmt.Errorf("they are not ready in time: %w", errors.Join(err, ctx.Err()))
	}
	served := server.Discovery()
	cancel()
	return append(served.Core, served.Groups...), <-done
}

// noTokens enables the token subresource of service accounts. It is never called.
type noTokens struct{}

func (noTokens) IssueToken(context.Context, string, string, types.UID, authenticationv1.TokenRequestSpec) (registry.IssuedToken, error) {
	return registry.IssuedToken{}, errors.New("no tokens are issued here")
}
