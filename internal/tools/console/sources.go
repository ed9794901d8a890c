package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/routes/v1alpha1"
)

// Names of the data sources, as the page shows them.
const (
	sourceVersion     = "version"
	sourceAPIServices = "APIServices"
	sourceFrontDoor   = "front door"
	sourceGateway     = "gateway"
	sourceNamespaces  = "namespaces"
	sourceDebts       = "debts"
	sourceRoutes      = "APIRoutes"
	sourceEvents      = "Events"
)

const (
	// slowFactor bounds the load of a source: after a request that took a second, it waits at least this number of
	// seconds.
	slowFactor = 5
	// absentInterval is the polling interval of a missing source.
	absentInterval = 30 * time.Second
	// pageSize bounds lists of Events, debts and routes.
	pageSize = 500
	// maxGatewayPods bounds the pods of a gateway from which metrics are read.
	maxGatewayPods = 8

	replicaLabel       = "gateway.portico.dev/replica"
	verdictsAnnotation = "gateway.portico.dev/verdicts"
	gatewayMetricsPort = "9090"
)

// missingError describes data that the API server does not provide. It is not a failure.
type missingError string

func (e missingError) Error() string { return string(e) }

// source is a data source that is polled.
type source struct {
	name string
	// every is the minimum interval between two requests.
	every time.Duration
	poll  func(context.Context) error
}

func (c *Console) sources() []source {
	slow := max(5*time.Second, c.cfg.Interval)
	return []source{
		{sourceVersion, max(10*time.Second, c.cfg.Interval), c.pollVersion},
		{sourceAPIServices, c.cfg.Interval, c.pollAPIServices},
		{sourceFrontDoor, c.cfg.Interval, c.pollFrontDoor},
		{sourceGateway, slow, c.pollGateways},
		{sourceNamespaces, slow, c.pollNamespaces},
		{sourceDebts, slow, c.pollDebts},
		{sourceRoutes, slow, c.pollRoutes},
		{sourceEvents, slow, c.pollEvents},
	}
}

// follow polls all sources until ctx ends.
func (c *Console) follow(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range c.sources() {
		wg.Go(func() { c.followOne(ctx, s) })
	}
}

func (c *Console) followOne(ctx context.Context, s source) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		next := c.readOnce(ctx, s)
		if ctx.Err() != nil {
			return
		}
		wait.Reset(next)
	}
}

// readOnce reads a source, records the result, and returns the time to wait before the next read.
func (c *Console) readOnce(ctx context.Context, s source) (next time.Duration) {
	began := c.cfg.now()
	err := s.poll(ctx)
	if ctx.Err() != nil {
		return 0 // the caller is stopping
	}
	next = max(s.every, slowFactor*c.cfg.now().Sub(began))
	status := sourceStatus{Name: s.name, OK: err == nil, Every: s.every.Seconds()}
	var missing missingError
	switch {
	case errors.As(err, &missing):
		status.Missing, next = string(missing), max(next, absentInterval)
	case codeOf(err) == http.StatusForbidden || codeOf(err) == http.StatusUnauthorized:
		status.Missing, next = err.Error(), max(next, absentInterval)
	case err != nil:
		status.Error = err.Error()
	}
	c.state.update(func() { c.state.report(status) })
	return next
}

func (c *Console) pollVersion(ctx context.Context) error {
	var info apiversion.Info
	if err := c.cluster.get(ctx, "/version", nil, &info); err != nil {
		return err
	}
	c.state.update(func() {
		o := &c.state.overview
		o.Version, o.Kind = info.GitVersion, "API server"
		if strings.Contains(info.GitVersion, "+portico-") {
			o.Kind = "front door"
		}
		c.state.publishOverview()
	})
	return nil
}

func (c *Console) pollAPIServices(ctx context.Context) error {
	var list apiregistrationv1.APIServiceList
	if err := c.cluster.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", fromCache(), &list); err != nil {
		return err
	}
	c.state.update(func() { c.state.setAPIServices(list.Items, c.cfg.now()) })
	return nil
}

// pollFrontDoor takes one sample of the charts: the debug state of the front door and its metrics.
func (c *Console) pollFrontDoor(ctx context.Context) error {
	var d apiservice.DebugState
	err := c.cluster.get(ctx, "/debug/aggregation", nil, &d)
	if code := codeOf(err); code == http.StatusNotFound || code == http.StatusForbidden {
		var isFrontDoor bool
		c.state.read(func() { isFrontDoor = c.state.overview.Kind == "front door" })
		if !isFrontDoor {
			return missingError("The API server is not a Portico front door: it does not report replicas, endpoints, latency and ejections. Conditions, Events, EndpointSlices and the doctor work without it.")
		}
	}
	if err != nil {
		return err
	}
	name := cmp.Or(d.Replica, "front door")
	var counted map[pool]*counts
	failed := c.cluster.read(ctx, "/metrics", nil, func(body io.Reader) (err error) {
		counted, err = readMetrics(body)
		return err
	})
	c.state.update(func() {
		now := c.cfg.now()
		c.state.charts.next(now)
		c.state.setFrontDoor(&d, now)
		if failed == nil {
			c.state.setMetrics(name, counted, now, true)
		}
		c.state.backendsOf(pool{}, listPoints)
		c.state.publishRoutes()
		c.state.publish(sectionTick, c.state.charts.sample)
	})
	if failed != nil {
		return fmt.Errorf("rates and latency are missing: %w", failed)
	}
	return nil
}

// gatewayServices returns the Services of the gateways that APIServices refer to.
func (s *state) gatewayServices() []adoption.Service {
	found := map[adoption.Service]bool{}
	for _, o := range s.objects {
		if o.Spec.Service != nil && adoption.Adopted(o) {
			gateway := adoption.ServiceOf(o.Spec.Service)
			gateway.Port = 0
			found[gateway] = true
		}
	}
	out := slices.SortedFunc(maps.Keys(found), func(a, b adoption.Service) int { return strings.Compare(a.String(), b.String()) })
	return out[:min(len(out), maxGatewayPods)]
}

// pollGateways reads the verdicts that gateway replicas publish in their Leases, and the metrics of their pods
// through the API server.
func (c *Console) pollGateways(ctx context.Context) error {
	var gateways []adoption.Service
	var listed, isFrontDoor bool
	c.state.read(func() {
		gateways, listed, isFrontDoor = c.state.gatewayServices(), c.state.listed, c.state.overview.Kind == "front door"
	})
	if listed && len(gateways) == 0 {
		return missingError("No APIService is behind a gateway.")
	}
	verdicts := map[string]map[string]gatewayVerdict{}
	counted := map[string]map[pool]*counts{}
	var failed error
	for _, g := range gateways {
		var leases coordinationv1.LeaseList
		path := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(g.Namespace) + "/leases"
		if err := c.cluster.get(ctx, path, url.Values{"labelSelector": {replicaLabel}, "limit": {"64"}}, &leases); err != nil {
			return fmt.Errorf("what the replicas of the gateway %s/%s find: %w", g.Namespace, g.Name, err)
		}
		for i := range leases.Items {
			addGatewayVerdicts(verdicts, &leases.Items[i], c.cfg.now())
		}
		pods, err := c.podsOf(ctx, g.Namespace, g.Name)
		if err != nil {
			failed = err
			continue
		}
		for _, pod := range pods[:min(len(pods), maxGatewayPods)] {
			path := "/api/v1/namespaces/" + url.PathEscape(g.Namespace) + "/pods/" + url.PathEscape(pod) + ":" + gatewayMetricsPort + "/proxy/metrics"
			err := c.cluster.read(ctx, path, nil, func(body io.Reader) (err error) {
				counted[pod], err = readMetrics(body)
				return err
			})
			if err != nil {
				failed = fmt.Errorf("metrics of the gateway's pod %s: %w", pod, err)
			}
		}
	}
	c.state.update(func() {
		now := c.cfg.now()
		c.state.gateways = verdicts
		if !isFrontDoor { // otherwise the front door's samples drive the charts
			c.state.charts.next(now)
		}
		for pod, all := range counted {
			c.state.setMetrics(pod, all, now, false)
		}
		if !isFrontDoor {
			c.state.backendsOf(pool{}, listPoints)
			c.state.publishRoutes()
			c.state.publish(sectionTick, c.state.charts.sample)
		}
		c.state.makeRows(now)
	})
	return failed
}

func addGatewayVerdicts(to map[string]map[string]gatewayVerdict, lease *coordinationv1.Lease, now time.Time) {
	spec := lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || now.Sub(spec.RenewTime.Time) > replicaMemory {
		return
	}
	var verdicts map[string]gatewayVerdict
	if unmarshal([]byte(lease.Annotations[verdictsAnnotation]), &verdicts) == nil && len(to) < maxReplicas {
		to[*spec.HolderIdentity] = verdicts
	}
}

func (c *Console) pollNamespaces(ctx context.Context) error {
	var list corev1.NamespaceList
	if err := c.cluster.get(ctx, "/api/v1/namespaces", url.Values{"fieldSelector": {"status.phase=Terminating"}, "limit": {fmt.Sprint(pageSize)}}, &list); err != nil {
		return err
	}
	c.state.update(func() {
		known := make(map[string]bool, len(c.state.objects))
		for name := range c.state.objects {
			known[name] = true
		}
		section := namespaces{Shown: []namespace{}}
		for i := range list.Items {
			if o := &list.Items[i]; o.DeletionTimestamp != nil {
				section.Shown = append(section.Shown, stuckNamespace(o, known, c.cfg.now()))
			}
		}
		section.Total = len(section.Shown)
		if list.RemainingItemCount != nil {
			section.Total += int(*list.RemainingItemCount)
		}
		slices.SortFunc(section.Shown, func(a, b namespace) int { return a.Since.Compare(b.Since) })
		section.Shown = section.Shown[:min(len(section.Shown), maxNamespaces)]
		c.state.publish(sectionNamespaces, section)
	})
	return nil
}

func (c *Console) pollDebts(ctx context.Context) error {
	var list debts.List
	err := c.cluster.get(ctx, "/debug/debts", nil, &list)
	if codeOf(err) == http.StatusNotFound {
		return missingError("Only a Portico front door has cleanup debts.")
	}
	if err != nil {
		return err
	}
	c.state.update(func() {
		section := debtList{Total: len(list.Debts), Shown: []debt{}}
		for _, e := range list.Debts[:min(len(list.Debts), pageSize)] {
			section.Shown = append(section.Shown, debt{
				ID: e.ID, Namespace: e.Namespace, GroupVersion: e.GroupVersion, APIService: e.APIService, Since: e.Since, State: string(e.State), Message: e.Message,
			})
		}
		c.state.publish(sectionDebts, section)
	})
	return nil
}

func (c *Console) pollRoutes(ctx context.Context) error {
	var list v1alpha1.APIRouteList
	err := c.cluster.get(ctx, "/apis/"+v1alpha1.GroupVersion.String()+"/apiroutes", url.Values{"limit": {fmt.Sprint(pageSize)}}, &list)
	if codeOf(err) == http.StatusNotFound {
		return missingError("The API server has no APIRoutes: they come with a Portico front door or gateway.")
	}
	if err != nil {
		return err
	}
	c.state.update(func() {
		c.state.routes = list.Items
		c.state.publishRoutes()
	})
	return nil
}

// pollEvents reads the Events about APIServices, APIRoutes and terminating namespaces. kube-apiserver itself records
// no Events about APIServices.
func (c *Console) pollEvents(ctx context.Context) error {
	var all []corev1.Event
	for _, kind := range []string{"APIService", "APIRoute"} {
		var list corev1.EventList
		query := url.Values{"fieldSelector": {"involvedObject.kind=" + kind}, "limit": {fmt.Sprint(pageSize)}}
		if err := c.cluster.get(ctx, "/api/v1/events", query, &list); err != nil {
			return err
		}
		all = append(all, list.Items...)
	}
	c.state.update(func() {
		if c.state.timeline.addEvents(all) {
			c.state.publishTimeline()
		}
	})
	return nil
}

// podsOf returns the names of the pods behind a Service.
func (c *Console) podsOf(ctx context.Context, namespace, service string) ([]string, error) {
	slices, err := c.endpointSlices(ctx, namespace, service)
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				pods = append(pods, e.TargetRef.Name)
			}
		}
	}
	return pods, nil
}
