package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/tools/drill/faulty"
)

const ruleListed = "discovery follows a change of an APIService"

const (
	// otherPort is a second port of each Service, with the same server.
	otherPort = 444
	// listedWithin bounds the time until discovery follows a change of an APIService. Its documents are fetched at once, also from a
	// server that has just become available.
	listedWithin = 20 * time.Second
	// collectedWithin is the time in which the garbage collector acts on a change of discovery.
	collectedWithin = 3 * time.Second
	// retractEvery is the number of histories for each that calls checkRetracted.
	retractEvery = 8
)

// checkRetracted lets a server leave its resource out of discovery while it stores objects, and moves its APIService to another port.
// Front doors accept that list at once, because the change shows an intent. Nobody can ask for an owner whose kind is not served, so
// its dependents must be kept.
func (h *history) checkRetracted(context.Context) error {
	if h.seed%retractEvery != 5 || h.adopted {
		return nil // an adopted APIService leads to a port of the gateways
	}
	b, o := h.storing(1), h.newOperation(step{action: "retract", choice: h.seed})
	owner := o.create(thing{backend: b, namespace: sharedNamespace, name: fmt.Sprintf("retracted-%x", h.seed)})
	if owner == nil {
		return errors.New("the owner has not been created")
	}
	dependent := o.create(thing{namespace: sharedNamespace, name: fmt.Sprintf("of-retracted-%x", h.seed)}, owner)
	if dependent == nil {
		return errors.New("the dependent has not been created")
	}
	if err := h.move(b, faulty.VanishingDiscovery, otherPort); err != nil {
		return err
	}
	time.Sleep(collectedWithin)
	o.checkPresent([]*thing{dependent})
	if err := h.move(b, faulty.Healthy, backendPort); err != nil {
		return err
	}
	return h.await(listedWithin, func() error { return h.checkAvailable(h.ctx) })
}

// move moves the APIService of a backend to another port, and returns when every front door lists the backend's resource, or does not
// list it if it vanishes.
func (h *history) move(b *backend, f faulty.Fault, port int32) error {
	h.disturb(b.name)
	if err := b.server.SetFault(f); err != nil {
		return err
	}
	c := h.client(admin, h.fronts[0])
	path := "/apis/apiregistration.k8s.io/v1/apiservices/" + b.apiService()
	var registration apiregistrationv1.APIService
	if err := c.do(h.ctx, http.MethodGet, path, nil).decode(&registration); err != nil {
		return err
	}
	registration.Spec.Service.Port = &port
	if err := c.do(h.ctx, http.MethodPut, path, &registration).failure(); err != nil {
		return err
	}
	h.log.addf("the APIService of %s moved to port %d", b.name, port)
	err := h.await(listedWithin, func() error { return h.checkListed(b, f == faulty.Healthy) })
	if err != nil && h.ctx.Err() == nil {
		h.violate(ruleListed, "%s after the change of %s: %v", listedWithin, b.apiService(), err)
	}
	return err
}

// checkListed returns an error if a front door lists the resource of a backend in discovery, or does not list it.
func (h *history) checkListed(b *backend, want bool) error {
	for _, f := range h.fronts {
		all, err := h.discovered(h.ctx, f)
		if err != nil {
			return err
		}
		if got := slices.Contains(all[b.apiService()].resources, b.resource()); got != want {
			return fmt.Errorf("%s: discovery lists %s of %s: %t, want %t", f.name, b.resource(), b.group, got, want)
		}
	}
	return nil
}
