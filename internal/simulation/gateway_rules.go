package simulation

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill/faulty"
)

const (
	ruleHop     = "a request for an adopted APIService reaches its backend through a gateway"
	ruleLeader  = "at most one gateway leads"
	ruleAdopted = "every APIService is adopted and served by a gateway after the last fault"
	ruleWriters = "the API server and the gateways do not overwrite each other's conditions"
)

// gatewayNames returns the names of the gateways, through any of which a request may go.
func (w *world) gatewayNames() []string {
	var names []string
	for _, g := range w.gateways {
		names = append(names, g.name)
	}
	return names
}

// checkHop requires that a request arrived on connections of gateways. Extension servers accept requests of the API server, too, so no
// other rule detects a front door that does not follow an adoption.
func (h *history) checkHop(a *answer, arrived arrivals) {
	if !h.adopted {
		return
	}
	for _, hop := range arrived.hops {
		if hop != gatewayService.FrontProxyName() {
			h.violate(ruleHop, "%s arrived with the certificate of %q, want %q", a.request, hop, gatewayService.FrontProxyName())
		}
	}
}

// checkLeaders requires that at most one gateway writes shared objects at any time. All hosts have one clock here, so that the Lease of
// the election guarantees it.
func (h *history) checkLeaders() {
	if leaders := h.leaders(); len(leaders) > 1 {
		h.violate(ruleLeader, "%v lead, want at most one", leaders)
	}
}

// leaders returns the names of the gateways that lead.
func (w *world) leaders() []string {
	var leaders []string
	for _, g := range w.gateways {
		if g.ready() && g.server.APIServices.DebugState().WritesStatus {
			leaders = append(leaders, g.name)
		}
	}
	return leaders
}

// gatewayView is what one gateway reports about all backends. The maps are by the name of the APIService.
type gatewayView struct {
	gateway       *gatewayReplica
	before, after map[string]apiservice.APIServiceState
	metrics       map[string]float64
}

func (v *gatewayView) available(b *backend) bool { return isAvailable(v.before[b.apiService()]) }

// verdicts returns the verdicts of a gateway. A gateway has no /debug/aggregation.
func (g *gatewayReplica) verdicts() map[string]apiservice.APIServiceState {
	verdicts := make(map[string]apiservice.APIServiceState)
	for _, s := range g.server.APIServices.DebugState().APIServices {
		verdicts[s.Name] = s
	}
	return verdicts
}

// gathered returns the metrics of a gateway, by name and labels.
func (g *gatewayReplica) gathered() (map[string]float64, error) {
	families, err := g.server.Registry.Gather()
	if err != nil {
		return nil, err
	}
	series := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, label := range m.GetLabel() {
				key += fmt.Sprintf("{%s=%q}", label.GetName(), label.GetValue())
			}
			if m.GetGauge() != nil {
				series[key] += m.GetGauge().GetValue()
			}
		}
	}
	return series, nil
}

// sums returns the sums of the metrics of a gateway over their labels.
func (g *gatewayReplica) sums() (map[string]float64, error) {
	sums := make(map[string]float64)
	if !g.ready() {
		return sums, nil
	}
	series, err := g.gathered()
	for key, value := range series {
		name, _, _ := strings.Cut(key, "{")
		sums[name] += value
	}
	return sums, err
}

// reaches reports whether nothing disturbs the front door and a gateway, and cut whether no request can arrive.
func (w *world) reaches(f *front, g *gatewayReplica) (reached, cut bool) {
	if !g.ready() || g.host.Frozen() || w.net.Link(f.host, g.host).Blocked || w.net.Link(g.host, f.host).Blocked {
		return false, true
	}
	return w.linked(f.host, g.host), false
}

// healthyBehind reports whether nothing disturbs a gateway and a backend.
func (w *world) healthyBehind(g *gatewayReplica, b *backend) bool {
	return w.linked(g.host, b.host) && b.server.Fault() == faulty.Healthy && !b.host.Frozen() && !g.host.Frozen()
}

// checkTwoVerdicts compares the reports of the front door about the gateways, and the reports of the gateways about the backends, with the
// faults, with each other and with the answers.
func (h *history) checkTwoVerdicts(ctx context.Context) error {
	steady, _ := h.steadyFronts()
	var gateways []*gatewayView
	for _, g := range h.gateways {
		if g.ready() {
			gateways = append(gateways, &gatewayView{gateway: g, before: g.verdicts()})
		}
	}
	views, err := h.observe(ctx, steady, true)
	if err != nil {
		return err
	}
	for _, v := range gateways {
		if v.metrics, err = v.gateway.gathered(); err != nil {
			return err
		}
		v.after = v.gateway.verdicts()
	}
	for _, b := range h.backends {
		name := b.apiService()
		if slices.ContainsFunc(gateways, func(v *gatewayView) bool { return changed(v.before[name], v.after[name]) }) {
			continue
		}
		for _, v := range gateways {
			if err := h.checkGateway(v, b); err != nil {
				return fmt.Errorf("%s, %s: %w", v.gateway.name, name, err)
			}
		}
		for _, v := range views {
			if changed(v.before[name], v.after[name]) {
				continue
			}
			if err := h.checkThrough(v, gateways, b); err != nil {
				return fmt.Errorf("%s, %s: %w", v.front.name, name, err)
			}
		}
	}
	return nil
}

// checkGateway compares the verdict of a gateway about a backend with the fault, and its metric with the verdict.
func (h *history) checkGateway(v *gatewayView, b *backend) error {
	name, g := b.apiService(), v.gateway
	verdict := v.before[name]
	if h.healthyBehind(g, b) && !v.available(b) {
		return fmt.Errorf("the verdict is %s, %s: %s, want True without a fault for %s", verdict.Available, verdict.Reason, verdict.Message, holdTime)
	}
	dead := b.dead() || g.host.Frozen() || h.net.Link(g.host, b.host).Blocked || h.net.Link(b.host, g.host).Blocked
	if dead && v.available(b) {
		return fmt.Errorf("the verdict is True since %s, want False: it cannot be reached for %s", verdict.Since, holdTime)
	}
	want := 1.0
	if v.available(b) {
		want = 0
	}
	series := fmt.Sprintf("aggregator_unavailable_apiservice{name=%q}", name)
	if got, exists := v.metrics[series]; !exists || got != want {
		return fmt.Errorf("%s is %v (%t), want %v as the verdict is %s", series, got, exists, want, verdict.Available)
	}
	return nil
}

// checkThrough compares what the front door reports about an APIService, and how it answers, with the gateways that it reaches.
func (h *history) checkThrough(v *view, gateways []*gatewayView, b *backend) error {
	name := b.apiService()
	verdict := v.before[name]
	reached, cut := 0, 0
	for _, g := range h.gateways {
		good, bad := h.reaches(v.front, g)
		if good {
			reached++
		}
		if bad {
			cut++
		}
	}
	// A dead backend does not make its gateway unavailable, because the API server would hide the cause then.
	if reached == len(h.gateways) && !v.available(b) {
		return fmt.Errorf("the verdict is %s, %s: %s, want True as every gateway is reached for %s", verdict.Available, verdict.Reason, verdict.Message, holdTime)
	}
	if cut == len(h.gateways) && v.available(b) {
		return fmt.Errorf("the verdict is True since %s, want False as no gateway can be reached for %s", verdict.Since, holdTime)
	}
	if err := checkMetric(v, b); err != nil {
		return err
	}
	if got := v.discovery[name].freshness; b.stores && !v.available(b) && got != "Stale" {
		return fmt.Errorf("discovery is %q, want Stale as the verdict is %s, %s", got, verdict.Available, verdict.Reason)
	}
	// If the document of a dead backend changed, its resources would be missing from deletions of namespaces.
	if got := v.discovery[name].freshness; reached == len(h.gateways) && b.dead() && got != "Current" {
		return fmt.Errorf("discovery is %q, want Current, as gateways serve the last known document of a dead backend", got)
	}
	if err := checkShared(v, []*view{v}, b); err != nil {
		return err
	}
	if err := h.checkAnswer(v, gateways, b, reached); err != nil {
		return err
	}
	return h.checkBackendCondition(v, gateways, b, reached)
}

// checkAnswer compares an answer with the verdicts: a 503 names the front door's cause, or the one of a gateway.
func (h *history) checkAnswer(v *view, gateways []*gatewayView, b *backend, reached int) error {
	name := b.apiService()
	a, refusal := v.answers[name], refusalOf(v.answers[name])
	if !v.available(b) {
		verdict := v.before[name]
		if refusal == nil || refusal.Name != name || len(refusal.Causes) == 0 || string(refusal.Causes[0].Type) != verdict.Reason {
			return fmt.Errorf("got %d %.300s (%v), want 503 with %s as the verdict is %s", a.status, a.body, a.err, verdict.Reason, verdict.Available)
		}
		return nil
	}
	if reached < len(h.gateways) {
		return nil // the answer may be of a gateway that it does not reach any more
	}
	up, healthy := 0, 0
	reasons := make(map[string]bool)
	for _, g := range gateways {
		if !g.available(b) {
			reasons[g.before[name].Reason] = true
			continue
		}
		up++
		if h.healthyBehind(g.gateway, b) {
			healthy++
		}
	}
	switch {
	case healthy == len(gateways) && !a.ok():
		return fmt.Errorf("got %w, want success as all gateways reach the backend and it has no fault", a.failure())
	case up == len(gateways) && refusal != nil:
		return fmt.Errorf("got %w, want an answer of the backend as the verdict of all gateways is True", a.failure())
	case up == 0 && (refusal == nil || refusal.Name != name || len(refusal.Causes) == 0 || !reasons[string(refusal.Causes[0].Type)]):
		return fmt.Errorf("got %d %.300s (%v), want 503 with one of %v as the verdict of all gateways is False", a.status, a.body, a.err, slices.Sorted(maps.Keys(reasons)))
	}
	return nil
}

// leaseTimes is how long the condition of the gateways may be wrong after a replica was lost: its Lease counts for 35 s, which the leader
// notices at its next renewal, and another replica leads after 15 s.
const leaseTimes = 75 * time.Second

// checkBackendCondition compares the condition that the gateways write with their verdicts.
func (h *history) checkBackendCondition(v *view, gateways []*gatewayView, b *backend, reached int) error {
	if reached < len(h.gateways) || time.Since(h.unsteady) < leaseTimes {
		return nil
	}
	var statuses, reasons []string
	available := false
	for _, g := range gateways {
		available = available || g.available(b)
		statuses, reasons = append(statuses, g.before[b.apiService()].Available), append(reasons, g.before[b.apiService()].Reason)
	}
	if available {
		statuses, reasons = []string{string(apiregistrationv1.ConditionTrue)}, []string{"Passed"}
	}
	got := conditionOf(v, b.apiService(), adoption.BackendAvailable)
	if !slices.Contains(statuses, string(got.Status)) || !slices.Contains(reasons, got.Reason) {
		return fmt.Errorf("condition BackendAvailable is %s, %s since %s, want %v, %v as the verdicts", got.Status, got.Reason, got.LastTransitionTime, statuses, reasons)
	}
	return nil
}

// gatewaysAtRest are the conditions of a world with gateways.
var gatewaysAtRest = []condition{
	{ruleAdopted, (*history).checkAdopted},
	{ruleWriters, (*history).checkWriters},
}

// checkAdopted returns an error while a gateway does not serve, none leads, or a condition of the gateways is not True.
func (h *history) checkAdopted(ctx context.Context) error {
	if len(h.gateways) == 0 {
		return nil
	}
	for _, g := range h.gateways {
		if err := g.exited(); err != nil {
			h.violate("every gateway runs", "%v", err)
			return err
		}
		if !g.ready() {
			return fmt.Errorf("%s is not ready", g.name)
		}
		verdicts := g.verdicts()
		for _, b := range h.backends {
			if verdict := verdicts[b.apiService()]; !isAvailable(verdict) {
				return fmt.Errorf("%s: the verdict about %s is %s, %s: %s, want True", g.name, b.apiService(), verdict.Available, verdict.Reason, verdict.Message)
			}
		}
	}
	if leaders := h.leaders(); len(leaders) != 1 {
		return fmt.Errorf("%v lead, want one gateway", leaders)
	}
	list, err := h.apiServices(ctx)
	if err != nil {
		return err
	}
	for _, b := range h.backends {
		o := list[b.apiService()]
		if o == nil || !gatewayService.Fronts(o) || !adoption.Adopted(o) {
			return fmt.Errorf("APIService %s is %+v, want it to lead to the gateway", b.apiService(), o)
		}
		for _, kind := range []apiregistrationv1.APIServiceConditionType{apiregistrationv1.Available, adoption.BackendAvailable, adoption.FrontProxyTrusted} {
			if c, _ := adoption.Condition(o, kind); c.Status != apiregistrationv1.ConditionTrue {
				return fmt.Errorf("condition %s of %s is %s, %s: %s, want True", kind, b.apiService(), c.Status, c.Reason, c.Message)
			}
		}
	}
	return nil
}

func (h *history) apiServices(ctx context.Context) (map[string]*apiregistrationv1.APIService, error) {
	var list apiregistrationv1.APIServiceList
	if err := h.client(admin, h.fronts[0]).do(ctx, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", nil).decode(&list); err != nil {
		return nil, err
	}
	all := make(map[string]*apiregistrationv1.APIService)
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// writersPause is longer than the interval of the gateways' rounds, and than the limit of repeated writes of a status.
const writersPause = 12 * time.Second

// checkWriters returns an error while the APIServices change at rest. The front door and the gateways write different conditions of one
// status, and each writes it whole.
func (h *history) checkWriters(ctx context.Context) error {
	if len(h.gateways) == 0 || h.seed%sampleEvery != 0 {
		return nil
	}
	before, err := h.apiServices(ctx)
	if err != nil {
		return err
	}
	time.Sleep(writersPause)
	ctx, cancel := context.WithTimeout(h.ctx, localBound)
	defer cancel()
	after, err := h.apiServices(ctx)
	if err != nil {
		return err
	}
	for _, b := range h.backends {
		was, is := before[b.apiService()], after[b.apiService()]
		if was.ResourceVersion != is.ResourceVersion {
			return fmt.Errorf("APIService %s changes at rest: its conditions were %+v, and are %+v", b.apiService(), was.Status.Conditions, is.Status.Conditions)
		}
	}
	return nil
}

// checkGatewaysIdle returns an error while a gateway counts something as in progress.
func (h *history) checkGatewaysIdle() error {
	for _, g := range h.gateways {
		sums, err := g.sums()
		if err != nil {
			return err
		}
		for name, most := range idleMetrics {
			if sums[name] > most {
				return fmt.Errorf("%s: %s is %v, want at most %v", g.name, name, sums[name], most)
			}
		}
	}
	return nil
}
