package server

import (
	"net/http"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routetable"
)

// testRouter holds the parts of a Router, for tests to change.
type testRouter struct {
	dispatch.Config
	openAPI, static http.Handler
}

// routerOf returns a Router for a table. Its local groups and documents respond with their names.
func routerOf(table *routetable.Table) *testRouter {
	return &testRouter{
		Config:  dispatch.Config{Routes: func() *routetable.Table { return table }, Local: named("local"), Discovery: named("discovery"), Proxy: proxy.New(proxy.Config{})},
		openAPI: named("openapi"), static: named("static"),
	}
}

func (s *testRouter) build() *Router {
	return &Router{Groups: dispatch.New(s.Config), Discovery: s.Discovery, OpenAPI: s.openAPI, Static: s.static}
}
