package apiservice

import (
	"errors"
	"math/rand/v2"

	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

// Services finds out where Services lead, by the rules that hold for those of APIServices. It reads caches only.
type Services struct {
	Services       corelisters.ServiceLister
	EndpointSlices discoverylisters.EndpointSliceLister
	// EndpointRouting leads to endpoints; otherwise to the cluster address of a Service that has one. Default false.
	EndpointRouting bool
}

// Address is one of the addresses, host:port, that a port of a Service leads to.
func (s Services) Address(namespace, name string, port int32) (string, error) {
	r := resolver{services: s.Services, slices: s.EndpointSlices, endpointRouting: s.EndpointRouting}
	found := r.resolve(&apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port},
	})
	if found.problem != nil {
		return "", errors.New(found.problem.message)
	}
	var taking []transport.Endpoint
	for _, e := range found.spec.Endpoints {
		if !e.Terminating {
			taking = append(taking, e)
		}
	}
	if len(taking) == 0 {
		return "", errors.New("no endpoint takes requests")
	}
	return taking[rand.IntN(len(taking))].Address, nil
}
