package console

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/transport"
)

// detail describes one APIService in full.
type detail struct {
	row
	Created         time.Time `json:"created"`
	GroupPriority   int32     `json:"groupPriority"`
	VersionPriority int32     `json:"versionPriority"`
	// Certificate is how the certificate of the server is verified, Insecure whether it is not.
	Certificate string       `json:"certificate,omitempty"`
	Insecure    bool         `json:"insecure,omitempty"`
	Conditions  []condition  `json:"conditions"`
	Backends    []backend    `json:"backends,omitempty"`
	Probes      []probeState `json:"probes,omitempty"`
	// Endpoints lists the endpoints in the EndpointSlices, if the front door does not report more.
	Endpoints []endpoint `json:"endpoints,omitempty"`
	Timeline  []moment   `json:"timeline"`
	// Missing lists the data that could not be read.
	Missing []string `json:"missing,omitempty"`
	// Points is the length of the charts, Span the time that they show, in seconds.
	Points int     `json:"points"`
	Span   float64 `json:"span"`
}

// probeState is the latest probe by one replica of the front door.
type probeState struct {
	Replica string `json:"replica"`
	apiservice.ProbeState
}

// detail collects the data about an APIService. It returns false if the APIService does not exist.
func (c *Console) detail(ctx context.Context, name string) (*detail, bool) {
	var d *detail
	var isFrontDoor bool
	c.state.read(func() {
		s := c.state
		o, r := s.objects[name], s.rows[name]
		if o == nil || r == nil {
			return
		}
		d = &detail{
			row: *r, Created: o.CreationTimestamp.Time, GroupPriority: o.Spec.GroupPriorityMinimum, VersionPriority: o.Spec.VersionPriority,
			Insecure: r.pool.trust == transport.Trust(nil, true), Conditions: conditionsOf(o), Timeline: s.timeline.entriesAbout("APIService", name), Points: detailPoints, Span: s.span(detailPoints),
		}
		if d.Timeline == nil {
			d.Timeline = []moment{}
		}
		isFrontDoor = len(s.replicas) > 0
		if r.Service == "" {
			return
		}
		path := "/apis/" + o.Spec.Group + "/" + o.Spec.Version
		d.Backends = s.backendsOf(r.pool, detailPoints)
		if r.Gateway != "" && isFrontDoor {
			d.Backends = append(d.Backends, s.backendsOf(r.gatewayPool, detailPoints)...)
		}
		d.Certificate = trustText(r.pool.trust)
		for _, id := range slices.Sorted(maps.Keys(s.replicas)) {
			replica := s.replicas[id]
			for i := range replica.backends {
				if p := poolOf(&replica.backends[i]); !r.pool.matches(p) && (r.Gateway == "" || !r.gatewayPool.matches(p)) {
					continue
				}
				for _, p := range replica.backends[i].Probes {
					if strings.HasSuffix(p.URL, path) {
						p.Error = causeFirst(p.Error)
						d.Probes = append(d.Probes, probeState{id, p})
					}
				}
			}
		}
	})
	if d == nil {
		return nil, false
	}
	if d.Service != "" && !isFrontDoor {
		c.addEndpoints(ctx, d)
	}
	return d, true
}

// addEndpoints reads the EndpointSlices of the extension server.
func (c *Console) addEndpoints(ctx context.Context, d *detail) {
	at, err := adoption.ParseService(d.Service)
	if err != nil {
		return
	}
	list, err := c.endpointSlices(ctx, at.Namespace, at.Name)
	if err != nil {
		d.Missing = append(d.Missing, "endpoints: "+err.Error())
		return
	}
	for _, s := range list {
		for _, e := range s.Endpoints {
			shown := endpoint{State: "ready"}
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				shown.State = "not ready"
			}
			if e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				shown.State = "terminating"
			}
			if e.Zone != nil {
				shown.Zone = *e.Zone
			}
			if e.TargetRef != nil {
				shown.Target = strings.ToLower(e.TargetRef.Kind) + " " + e.TargetRef.Name
			}
			for _, address := range e.Addresses {
				if len(d.Endpoints) < maxEndpoints {
					one := shown
					one.Address = address
					d.Endpoints = append(d.Endpoints, one)
				}
			}
		}
	}
}

func (c *Console) endpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	path := "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/endpointslices"
	query := fromCache()
	query.Set("labelSelector", discoveryv1.LabelServiceName+"="+service)
	if err := c.cluster.get(ctx, path, query, &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// unmarshal decodes JSON that may be absent.
func unmarshal(text []byte, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	return json.Unmarshal(text, into)
}
