package server

import (
	"net/http"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routetable"
)

// testRouter is what a Router is made of, for tests to change.
type testRouter struct {
	dispatch.Config
	openAPI, static http.Handler
}

// routerOf is a Router for a table, whose local groups and documents answer with their names.
func routerOf(table *routetable.Table) *testRouter {
	return &testRouter{
		Config:  dispatch.Config{Routes: func() *routetable.Table { return table }, Local: named("local"), Discovery: named("discovery"), Proxy: proxy.New(proxy.Config{})},
		openAPI: named("openapi"), static: named("static"),
	}
}

func (s *testRouter) build() *Router {
	return &Router{Groups: dispatch.New(s.Config), Discovery: s.Discovery, OpenAPI: s.openAPI, Static: s.static}
}
