package simulation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/simulation/network"
	"portico.dev/internal/tools/drill/faulty"
)

// ruleAgree exists because users, controllers, alerts and load balancers read different reports of the same verdict.
const ruleAgree = "the reports of a replica about a backend agree with each other and with its answers"

const (
	// holdTime is how long faults last until all reports show them: 4.5 s until a dead backend is detected, at most 5.75 s
	// until the next probe of one that has returned, 6 s until a dead replica has left, and retries of writes every 5 s.
	holdTime = 25 * time.Second
	// agreeWithin bounds a disagreement after that: a verdict may have changed a moment ago.
	agreeWithin = 6 * time.Second
	// quietBefore is how long etcd and the front doors have had no fault before a transition whose Event must exist.
	quietBefore = 8 * time.Second
	// eventCounting is the time in which a repeated Event is not written again (countInterval), with the precision of Events.
	eventCounting = 11 * time.Second
)

// holds are pauses in which faults last, so that everything that reports them agrees.
func holds() []action {
	return []action{{name: "hold", weight: 1, begin: hold, end: func(*history, step) {}}}
}

// hold waits while the active faults last, and compares the reports. No other fault begins or ends, because both happen in the
// goroutine of the history.
func hold(h *history, _ step) {
	began := time.Now()
	h.postpone(holdTime)
	time.Sleep(holdTime)
	err := h.await(agreeWithin, func() error {
		ctx, cancel := context.WithTimeout(h.ctx, 2*requestTimeout)
		defer cancel()
		return h.checkAgreement(ctx)
	})
	if err != nil && h.ctx.Err() == nil {
		h.violate(ruleAgree, "%v", err)
	}
	h.postpone(time.Since(began) - holdTime)
}

// view is what one front door reports about all backends, and how it answers. The maps are by the name of the APIService.
type view struct {
	front         *front
	replica       string
	before, after map[string]apiservice.APIServiceState
	metrics       map[string]float64
	conditions    map[string][]apiregistrationv1.APIServiceCondition
	discovery     map[string]discovered
	answers       map[string]*answer
}

// available reports whether the front door itself reaches a backend.
func (v *view) available(b *backend) bool { return isAvailable(v.before[b.apiService()]) }

func isAvailable(s apiservice.APIServiceState) bool {
	return s.Available == string(apiregistrationv1.ConditionTrue)
}

// steadyFronts returns the front doors that run and reach etcd, and whether these are all that run. While etcd is full, they cannot
// report to each other.
func (h *history) steadyFronts() (steady []*front, all bool) {
	if h.etcd.server == nil || h.etcd.host.Frozen() {
		return nil, false
	}
	running := h.running()
	for _, f := range running {
		if h.linked(f.host, h.etcd.host) {
			steady = append(steady, f)
		}
	}
	return steady, len(steady) == len(running) && !h.etcd.full
}

// dead reports whether a backend's fault makes every probe fail.
func (b *backend) dead() bool {
	dead := []faulty.Fault{faulty.Refuse, faulty.Blackhole, faulty.ExpiredCertificate, faulty.WrongAuthority, faulty.WrongName}
	return slices.Contains(dead, b.server.Fault()) || b.host.Frozen()
}

// linked reports whether both directions between two hosts are normal.
func (w *world) linked(a, b *network.Host) bool {
	normal := network.Link{Latency: latency}
	return w.net.Link(a, b) == normal && w.net.Link(b, a) == normal
}

// healthyTo reports whether nothing disturbs a front door and a backend.
func (w *world) healthyTo(f *front, b *backend) bool {
	return w.linked(f.host, b.host) && b.server.Fault() == faulty.Healthy && !b.host.Frozen()
}

// deadTo reports whether a front door cannot reach a backend. Probes may fail or succeed with all other faults.
func (w *world) deadTo(f *front, b *backend) bool {
	return b.dead() || w.net.Link(f.host, b.host).Blocked || w.net.Link(b.host, f.host).Blocked
}

// checkAgreement returns an error while reports disagree. Backends with a verdict that changes meanwhile are left out.
func (h *history) checkAgreement(ctx context.Context) error {
	if len(h.gateways) > 0 {
		return h.checkTwoVerdicts(ctx) // the verdict of the front door is about the gateways, and theirs about the backend
	}
	fronts, all := h.steadyFronts()
	clear(h.scrapes) // verdicts may change
	views, err := h.observe(ctx, fronts, true)
	if err != nil {
		return err
	}
	for _, b := range h.backends {
		if slices.ContainsFunc(views, func(v *view) bool { return changed(v.before[b.apiService()], v.after[b.apiService()]) }) {
			continue
		}
		for _, v := range views {
			if err := h.checkView(v, views, b); err != nil {
				return fmt.Errorf("%s, %s: %w", v.front.name, b.apiService(), err)
			}
			if !all {
				continue // the leader, or a replica with another verdict, may have lost etcd
			}
			if err := checkShared(v, views, b); err != nil {
				return fmt.Errorf("%s, %s: %w", v.front.name, b.apiService(), err)
			}
		}
		if all {
			if err := h.checkEvent(ctx, views, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func changed(a, b apiservice.APIServiceState) bool {
	return a.Available != b.Available || a.Reason != b.Reason || !a.Since.Equal(b.Since) || !maps.Equal(a.Elsewhere, b.Elsewhere)
}

// observe reads the reports of front doors. The verdicts are read before and after the others if requests are sent too.
func (h *history) observe(ctx context.Context, fronts []*front, requests bool) ([]*view, error) {
	var views []*view
	for _, f := range fronts {
		v := &view{front: f, answers: make(map[string]*answer)}
		var err error
		if v.replica, v.before, err = h.verdicts(ctx, f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		views = append(views, v)
	}
	for _, v := range views {
		if err := h.readReports(ctx, v); err != nil {
			return nil, fmt.Errorf("%s: %w", v.front.name, err)
		}
		if !requests {
			continue
		}
		for _, b := range h.backends {
			v.answers[b.apiService()] = h.ask(ctx, v.front, b)
		}
	}
	for _, v := range views {
		var err error
		if v.after = v.before; requests {
			if _, v.after, err = h.verdicts(ctx, v.front); err != nil {
				return nil, fmt.Errorf("%s: %w", v.front.name, err)
			}
		}
	}
	return views, nil
}

// ask sends a request for a backend. One that hangs does not delay the history.
func (h *history) ask(ctx context.Context, f *front, b *backend) *answer {
	ctx, cancel := context.WithTimeout(ctx, localBound)
	defer cancel()
	return h.client(admin, f).do(ctx, http.MethodGet, b.path("default"), nil)
}

// verdicts returns the name of a replica and its verdicts.
func (h *history) verdicts(ctx context.Context, f *front) (replica string, verdicts map[string]apiservice.APIServiceState, err error) {
	var state apiservice.DebugState
	if err := h.client(admin, f).do(ctx, http.MethodGet, "/debug/aggregation", nil).decode(&state); err != nil {
		return "", nil, err
	}
	verdicts = make(map[string]apiservice.APIServiceState)
	for _, s := range state.APIServices {
		verdicts[s.Name] = s
	}
	return state.Replica, verdicts, nil
}

// readReports reads metrics, conditions and discovery.
func (h *history) readReports(ctx context.Context, v *view) error {
	c := h.client(admin, v.front)
	var err error
	if v.metrics, err = h.scrape(ctx, v.front); err != nil {
		return err
	}
	var list apiregistrationv1.APIServiceList
	if err := c.do(ctx, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", nil).decode(&list); err != nil {
		return err
	}
	v.conditions = make(map[string][]apiregistrationv1.APIServiceCondition)
	for _, a := range list.Items {
		v.conditions[a.Name] = a.Status.Conditions
	}
	v.discovery, err = h.discovered(ctx, v.front)
	return err
}

// discovered is a group-version in discovery.
type discovered struct {
	freshness string
	resources []string
}

// discovered returns the group-versions in the discovery of a front door, by the name of their APIService.
func (w *world) discovered(ctx context.Context, f *front) (map[string]discovered, error) {
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version, Freshness string
				Resources          []struct{ Resource string }
			}
		}
	}
	if err := w.client(admin, f).get(ctx, "/apis", http.Header{"Accept": {aggregatedDiscovery}}).decode(&groups); err != nil {
		return nil, err
	}
	all := make(map[string]discovered)
	for _, g := range groups.Items {
		for _, v := range g.Versions {
			d := discovered{freshness: v.Freshness}
			for _, r := range v.Resources {
				d.resources = append(d.resources, r.Resource)
			}
			all[v.Version+"."+g.Metadata.Name] = d
		}
	}
	return all, nil
}

// unavailableMetric is the metric of the verdicts of a front door.
const unavailableMetric = "aggregator_unavailable_apiservice"

// usedMetrics selects the metrics that rules compare.
var usedMetrics = url.Values{"name[]": slices.Concat([]string{unavailableMetric}, slices.Sorted(maps.Keys(idleMetrics)), growingMetrics)}.Encode()

// scrape returns the series of usedMetrics of a front door, by name and labels.
func (h *history) scrape(ctx context.Context, f *front) (map[string]float64, error) {
	if series := h.scrapes[f]; series != nil {
		return series, nil
	}
	a := h.client(admin, f).do(ctx, http.MethodGet, "/metrics?"+usedMetrics, nil)
	if err := a.failure(); err != nil {
		return nil, err
	}
	series := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(a.body))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %q: %w", line, err)
		}
		series[line[:end]] = value
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	h.scrapes[f] = series
	return series, nil
}

// checkView compares the reports and the answers of one front door, and its verdict with the fault.
func (h *history) checkView(v *view, views []*view, b *backend) error {
	name := b.apiService()
	verdict := v.before[name]
	elsewhere := slices.Contains(slices.Collect(maps.Values(verdict.Elsewhere)), string(apiregistrationv1.ConditionTrue))
	if h.healthyTo(v.front, b) && !v.available(b) && verdict.Reason != apiservice.CleanupDebt {
		return fmt.Errorf("the verdict is %s, %s: %s, want True without a fault for %s", verdict.Available, verdict.Reason, verdict.Message, holdTime)
	}
	if h.deadTo(v.front, b) && v.available(b) {
		return fmt.Errorf("the verdict is True since %s, want False: it cannot be reached for %s", verdict.Since, holdTime)
	}
	if err := checkMetric(v, b); err != nil {
		return err
	}
	if err := checkDiscovered(v, b, elsewhere, h.healthyTo(v.front, b)); err != nil {
		return err
	}
	a := v.answers[name]
	refusal := refusalOf(a)
	switch {
	case v.available(b) && refusal != nil:
		return fmt.Errorf("got %w, want an answer of the backend as the verdict is True", a.failure())
	case v.available(b):
		if h.healthyTo(v.front, b) && !a.ok() {
			return fmt.Errorf("got %w, want success as the verdict is True and it has no fault", a.failure())
		}
	case !elsewhere:
		if refusal == nil || refusal.Name != name || len(refusal.Causes) == 0 || string(refusal.Causes[0].Type) != verdict.Reason {
			return fmt.Errorf("got %d %.300s (%v), want 503 with %s as the verdict is %s", a.status, a.body, a.err, verdict.Reason, verdict.Available)
		}
	case h.reachedThrough(v, views, b) && !a.ok():
		return fmt.Errorf("got %w, want success, because another replica without a fault reaches it: %v", a.failure(), verdict.Elsewhere)
	}
	return nil
}

// checkDiscovered compares discovery with the verdict of a front door. A client that does not find a resource takes it for one that does
// not exist. Controllers wait for a group-version that is Stale, so one that stores nothing never is.
func checkDiscovered(v *view, b *backend, elsewhere, healthy bool) error {
	got, verdict := v.discovery[b.apiService()], v.before[b.apiService()]
	switch {
	case !slices.Contains(got.resources, b.resource()):
		return fmt.Errorf("discovery lists %q, want %s as well, also if it is unavailable", got.resources, b.resource())
	case b.stores && !v.available(b) && !elsewhere && got.freshness != "Stale":
		return fmt.Errorf("discovery is %q, want Stale as the verdict is %s, %s", got.freshness, verdict.Available, verdict.Reason)
	case (!b.stores || v.available(b) && healthy) && got.freshness != "Current":
		return fmt.Errorf("discovery is %q, want Current as the verdict is %s, %s, and it stores objects: %t", got.freshness, verdict.Available, verdict.Reason, b.stores)
	}
	return nil
}

func checkMetric(v *view, b *backend) error {
	want := 1.0
	if v.available(b) {
		want = 0
	}
	series := fmt.Sprintf("%s{name=%q}", unavailableMetric, b.apiService())
	if got, exists := v.metrics[series]; !exists || got != want {
		return fmt.Errorf("%s is %v (%t), want %v as the verdict is %s", series, got, exists, want, v.before[b.apiService()].Available)
	}
	return nil
}

// refusalOf returns the details of a 503 of the front door about an unavailable APIService, or nil.
func refusalOf(a *answer) *metav1.StatusDetails {
	if a.err != nil || a.status != http.StatusServiceUnavailable {
		return nil
	}
	var status metav1.Status
	if json.Unmarshal(a.body, &status) != nil || !strings.Contains(status.Message, " is unavailable (") {
		return nil
	}
	return status.Details
}

// reachedThrough reports whether every replica that reaches a backend can serve requests of a front door for it without a fault.
func (h *history) reachedThrough(v *view, views []*view, b *backend) bool {
	return len(views) == len(h.running()) && !slices.ContainsFunc(views, func(o *view) bool {
		return o != v && o.available(b) && !(h.linked(v.front.host, o.front.host) && h.healthyTo(o.front, b))
	})
}

// checkShared compares the knowledge of a front door about all replicas with their verdicts: replicas share only etcd.
func checkShared(v *view, views []*view, b *backend) error {
	name := b.apiService()
	want := make(map[string]string)
	available := 0
	var statuses, reasons []string
	for _, o := range views {
		verdict := o.before[name]
		if o != v {
			want[o.replica] = verdict.Available
		}
		if o.available(b) {
			available++
		}
		statuses, reasons = append(statuses, verdict.Available), append(reasons, verdict.Reason)
	}
	if got := v.before[name].Elsewhere; !maps.Equal(got, want) {
		return fmt.Errorf("verdicts of the other replicas are %v, want %v", got, want)
	}
	got := conditionOf(v, name, apiregistrationv1.Available)
	if available > 0 {
		statuses, reasons = []string{string(apiregistrationv1.ConditionTrue)}, []string{"Passed"}
	}
	if !slices.Contains(statuses, string(got.Status)) || !slices.Contains(reasons, got.Reason) {
		return fmt.Errorf("condition Available is %s, %s since %s, want %v, %v as the verdicts", got.Status, got.Reason, got.LastTransitionTime, statuses, reasons)
	}
	if len(views) == 1 {
		return nil
	}
	all := conditionOf(v, name, apiservice.AvailableOnAllReplicas)
	if (all.Status == apiregistrationv1.ConditionTrue) != (available == len(views)) {
		return fmt.Errorf("AvailableOnAllReplicas is %s, %s: %s; %d of %d replicas reach the backend", all.Status, all.Reason, all.Message, available, len(views))
	}
	return nil
}

func conditionOf(v *view, name string, kind apiregistrationv1.APIServiceConditionType) apiregistrationv1.APIServiceCondition {
	for _, c := range v.conditions[name] {
		if c.Type == kind {
			return c
		}
	}
	return apiregistrationv1.APIServiceCondition{}
}

// checkEvent checks that an Event reports the last transition of the condition Available. Events are not repeated if their write
// fails, so the transition must have happened while etcd and the front doors had no fault.
func (h *history) checkEvent(ctx context.Context, views []*view, b *backend) error {
	if len(views) == 0 {
		return nil
	}
	c := conditionOf(views[0], b.apiService(), apiregistrationv1.Available)
	at := c.LastTransitionTime.Time
	if at.Before(h.began) || !h.quietSince(at.Add(-quietBefore)) {
		return nil
	}
	want := "BackendUnavailable"
	if c.Status == apiregistrationv1.ConditionTrue {
		want = "BackendAvailable"
	}
	selector := url.Values{"fieldSelector": {"involvedObject.name=" + b.apiService() + ",reason=" + want}}
	var events corev1.EventList
	if err := h.client(admin, views[0].front).do(ctx, http.MethodGet, "/api/v1/namespaces/default/events?"+selector.Encode(), nil).decode(&events); err != nil {
		return err
	}
	var last time.Time
	for _, e := range events.Items {
		if e.LastTimestamp.After(last) {
			last = e.LastTimestamp.Time
		}
	}
	if last.Before(at.Add(-eventCounting)) {
		return fmt.Errorf("condition Available of %s is %s since %s; the last of %d Events %s is from %s", b.apiService(), c.Status, at, len(events.Items), want, last)
	}
	return nil
}

// quietSince reports whether etcd and the front doors have had no change of a fault since a moment.
func (h *history) quietSince(since time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.fronts {
		if h.disturbed[f.name].After(since) {
			return false
		}
	}
	return !h.disturbed["etcd"].After(since) && !h.disturbed[etcdSpace].After(since)
}

var agreementAtRest = []condition{{"all reports of all replicas agree after the last fault", (*history).checkAllAvailable}}

// checkAllAvailable returns an error while a report of a replica shows a backend as unavailable.
func (h *history) checkAllAvailable(ctx context.Context) error {
	views, err := h.observe(ctx, h.fronts, false)
	if err != nil {
		return err
	}
	for _, b := range h.backends {
		name := b.apiService()
		for _, v := range views {
			if verdict := v.before[name]; !v.available(b) {
				return fmt.Errorf("%s: the verdict about %s is %s, %s: %s, want True", v.front.name, name, verdict.Available, verdict.Reason, verdict.Message)
			}
			if err := checkMetric(v, b); err != nil {
				return fmt.Errorf("%s: %w", v.front.name, err)
			}
			if got := v.discovery[name].freshness; got != "Current" {
				return fmt.Errorf("%s: discovery of %s is %q, want Current", v.front.name, name, got)
			}
			if err := checkShared(v, views, b); err != nil {
				return fmt.Errorf("%s, %s: %w", v.front.name, name, err)
			}
		}
		if err := h.checkEvent(ctx, views, b); err != nil {
			return err
		}
	}
	return nil
}
