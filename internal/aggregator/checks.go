package aggregator

import (
	"context"
	"errors"

	"portico.dev/internal/server"
)

// checks are what /readyz asks. /livez asks none of them: what they find is not mended by a restart. None depends on an
// extension server.
func (h *parts) checks() []server.Check {
	return append(h.storageChecks(), []server.Check{
		{Name: "local-groups", Ask: closed(h.core.Ready())},
		{Name: "rbac", Ask: closed(h.rbac.Ready())},
		{Name: "apiservice-routes", Ask: closed(h.apiservices.Ready())},
		{Name: "discovery", Ask: closed(h.discovery.Ready())},
		{Name: "client-ca-file", Ask: func(context.Context) error { return h.clientCA.Stale() }},
		{Name: "authentication", Ask: func(context.Context) error { return errors.Join(h.authn.Stale(), h.issuers.Stale()) }},
		{Name: "authorization", Ask: func(context.Context) error { return h.authz.Stale() }},
		{Name: "requestheader-client-ca-file", Ask: func(context.Context) error { return h.frontProxy.Stale() }},
		{Name: "tls-cert-file", Ask: func(context.Context) error { return h.shown.Stale() }},
		{Name: "proxy-client-cert-file", Ask: func(context.Context) error { return h.presented.Stale() }},
	}...)
}

var errStarting = errors.New("not there yet")

func closed(ready <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		select {
		case <-ready:
			return nil
		default:
			return errStarting
		}
	}
}

// notReady is why API requests cannot be answered yet. The listener opens last, so this speaks only of what may still
// be missing then.
func (h *parts) notReady() error {
	for _, ready := range []<-chan struct{}{h.core.Ready(), h.rbac.Ready()} {
		if err := closed(ready)(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
