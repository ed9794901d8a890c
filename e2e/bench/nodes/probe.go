package nodes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// probes are clients of an API server that send requests at a fixed rate, without waiting for earlier responses.
type probes struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	all    []*probe
}

// probe sends one kind of request.
type probe struct {
	name   string
	class  string
	every  time.Duration
	one    bool // ask.Path is the prefix of an object's path
	ask    environment.Ask
	server *environment.Server
	client *http.Client

	mu     sync.Mutex // guards the fields below
	took   []time.Duration
	failed []error
}

// most bounds the pending requests of one probe. More would be an unrealistic load.
const most = 64

// probed is the number of objects over which the probes for one object rotate, so that no two pending requests
// concern the same object.
const probed = most

func probeName(n int64) string { return fmt.Sprintf("probe-%02d", n%probed) }

func startProbes(ctx context.Context, g *rig) (*probes, error) {
	for n := range int64(probed) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probeName(n)}, Data: map[string]string{"n": "0"}}
		if _, err := g.front.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create what is probed: %w", err)
		}
	}
	const configMaps = "/api/v1/namespaces/default/configmaps/"
	ctx, cancel := context.WithCancel(ctx)
	p := &probes{cancel: cancel}
	for _, one := range []*probe{
		{name: "GET of a ConfigMap", class: single, every: g.Every, one: true, ask: environment.Ask{Method: http.MethodGet, Path: configMaps}},
		{name: "PUT of a ConfigMap", class: mutating, every: g.Every, one: true, ask: environment.Ask{Method: http.MethodPut, Path: configMaps, EachBody: func(n int64) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d"}}`, probeName(n), n)
		}}},
		{name: "list of all Nodes", class: lists, every: g.EveryList, ask: environment.Ask{Method: http.MethodGet, Path: "/api/v1/nodes", Accept: "application/vnd.kubernetes.protobuf"}},
		{name: "list of the Pods of a namespace", class: lists, every: g.EveryList, ask: environment.Ask{Method: http.MethodGet, Path: "/api/v1/namespaces/" + namespace(0) + "/pods", Accept: "application/vnd.kubernetes.protobuf"}},
		{name: "list of all Pods", class: lists, every: g.EveryList, ask: environment.Ask{Method: http.MethodGet, Path: "/api/v1/pods", Accept: "application/vnd.kubernetes.protobuf"}},
	} {
		one.server, one.ask.Token = g.front.Server, environment.AdminToken
		var err error
		if one.client, err = environment.NewClient(g.front.Server, true); err != nil {
			p.stop()
			return nil, err
		}
		p.all = append(p.all, one)
		p.ended.Go(func() { one.run(ctx) })
	}
	return p, nil
}

// run sends requests until ctx ends, and then waits for the pending responses.
func (p *probe) run(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	places := make(chan struct{}, most)
	for n := int64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		asking.Go(func() {
			defer func() { <-places }()
			// Requests complete even if the probe ends.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			began := time.Now()
			err := p.once(ctx, n)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.failed = append(p.failed, err)
				return
			}
			p.took = append(p.took, time.Since(began))
		})
	}
}

func (p *probe) once(ctx context.Context, n int64) error {
	ask, body := p.ask, ""
	if ask.EachBody != nil {
		body = ask.EachBody(n)
	}
	if p.one {
		ask.Path += probeName(n)
	}
	r, err := environment.NewRequest(ctx, p.server, ask, body)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

// stop ends the probes and returns their results.
func (p *probes) stop() (all []Probe) {
	p.cancel()
	p.ended.Wait()
	for _, one := range p.all {
		slices.Sort(one.took)
		seen := Probe{Name: one.name, Class: one.class, Requests: len(one.took), Failed: len(one.failed)}
		seen.P50, seen.P99 = ms(measure.Quantile(one.took, 0.5)), ms(measure.Quantile(one.took, 0.99))
		if len(one.took) > 0 {
			seen.Max = ms(one.took[len(one.took)-1])
		}
		if len(one.failed) > 0 {
			seen.Example = one.failed[0].Error()
		}
		all = append(all, seen)
	}
	return all
}
