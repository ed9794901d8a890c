package apiservice

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
)

const metricsAPI, shopAPI = "v1beta1.metrics.k8s.io", "v1.shop.example.com"

// Each row lists the backends that the live replicas reach: "a:m" means that replica a reaches metrics.k8s.io, "b:ms" that b
// reaches both, "c:" that c reaches none.
func TestReadinessRemovesReplicasWithFewestBackends(t *testing.T) {
	for _, test := range []struct {
		live  string
		share float64
		want  string
	}{
		{"a:ms", 0.5, ""},
		{"a:", 0.5, ""},
		{"a:", 1, ""}, // alone, it is not worse than no replica
		{"a:ms b:ms", 0.5, ""},
		{"a:s b:ms", 0.5, "a"},
		{"a:ms b:s", 0.5, "b"},
		{"a: b:", 0.5, ""}, // the other replica is not better
		{"a: b:", 1, ""},
		{"a:m b:s", 0.5, "a"}, // each misses one: one of the two stays
		{"a:m b:s", 1, "a b"},
		{"a:m b:", 0.5, "b"}, // no replica reaches the shop, b misses metrics
		{"a:ms b:ms c:s", 0.5, "c"},
		{"a:s b:s c:ms", 0.5, "a"}, // at most one of three
		{"a:s b: c:ms", 0.5, "b"},  // b misses more
		{"a:s b:s c:s", 0.5, ""},
		{"a:s b:s c:ms d:ms", 0.5, "a b"},
		{"a:s b:s c:s d:ms", 0.5, "a b"},
		{"a:s b:s c:s d:ms", 0.75, "a b c"},
		{"a:s b:s c:s d:ms", 0, ""},
		{"a:s b:s c:ms d:ms e:ms", 0.2, "a"},
		{"a:s b:s c:ms d:ms e:ms", 0.39, "a"},
	} {
		var live []replicaReach
		for field := range strings.FieldsSeq(test.live) {
			name, reaches, _ := strings.Cut(field, ":")
			live = append(live, replicaReach{name, map[string]bool{
				metricsAPI: strings.Contains(reaches, "m"), shopAPI: strings.Contains(reaches, "s"),
			}})
		}
		d := Readiness{APIServices: []string{metricsAPI, shopAPI}, MaxNotReady: test.share}
		for range 5 { // every replica sees them in a different order
			rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
			if got := strings.Join(d.leaving(live), " "); got != test.want {
				t.Errorf("%s, at most %v: leaving = %q, want %q", test.live, test.share, got, test.want)
			}
		}
	}
}

// fakePeers are other replicas with fixed values.
type fakePeers struct{ others map[string][]byte }

func (p fakePeers) Publish([]byte)                      {}
func (p fakePeers) Received() (map[string][]byte, bool) { return p.others, false }
func (p fakePeers) Changed() <-chan struct{}            { return nil }

func routeTo(name string, status apiregistrationv1.ConditionStatus) *routetable.Route {
	version, group, _ := strings.Cut(name, ".")
	return &routetable.Route{
		GroupVersion: schema.GroupVersion{Group: group, Version: version}, Name: name, UID: types.UID("uid of " + name),
		Service:   &apiregistrationv1.ServiceReference{Namespace: "ns", Name: group},
		Condition: apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: "FailedDiscoveryCheck", Message: "it hangs"},
	}
}

// replicaNamed returns the controller of one of several replicas with the given verdicts on the same registrations.
func replicaNamed(t *testing.T, name string, verdicts map[string]map[string]apiregistrationv1.ConditionStatus) *Controller {
	t.Helper()
	peers := fakePeers{make(map[string][]byte)}
	var own *routetable.Table
	for replica, statuses := range verdicts {
		var routes []*routetable.Route
		for api, status := range statuses {
			routes = append(routes, routeTo(api, status))
		}
		table := routetable.NewTable(routes, true)
		if replica == name {
			own = table
			continue
		}
		text, err := encodeVerdicts(table)
		if err != nil {
			t.Fatal(err)
		}
		peers.others[replica] = text
	}
	c := &Controller{replicas: newReplicas(peers, name, nil, zap.NewNop())}
	c.table.Store(own)
	c.replicas.update()
	return c
}

// Each replica decides by the published verdicts, and all reach the same result.
func TestReplicasAgreeOnReadiness(t *testing.T) {
	const up, down = apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse
	readiness := Readiness{APIServices: []string{metricsAPI}, MaxNotReady: 0.5}
	for _, test := range []struct{ up, down, notReady string }{
		{"a b c", "", ""},
		{"", "a b c", ""},
		{"a b", "c", "c"},
		{"c", "a b", "a"},
		{"c d", "a b", "a b"},
		{"d", "a b c", "a b"},
		{"a", "", ""},
		{"", "a", ""},
	} {
		verdicts := make(map[string]map[string]apiregistrationv1.ConditionStatus)
		for replica := range strings.FieldsSeq(test.up) {
			verdicts[replica] = map[string]apiregistrationv1.ConditionStatus{metricsAPI: up}
		}
		for replica := range strings.FieldsSeq(test.down) {
			verdicts[replica] = map[string]apiregistrationv1.ConditionStatus{metricsAPI: down}
		}
		var notReady []string
		for replica := range verdicts {
			err := replicaNamed(t, replica, verdicts).CheckReadiness(readiness, metricsAPI)
			_, tolerated := errors.AsType[*ToleratedError](err)
			switch {
			case err != nil && !tolerated:
				notReady = append(notReady, replica)
			case tolerated == strings.Contains(test.up, replica):
				t.Errorf("%+v: CheckReadiness of %s: error = %v, tolerated %t, want a tolerated error if it is down and none if it is up", test, replica, err, tolerated)
			}
		}
		slices.Sort(notReady)
		if got := strings.Join(notReady, " "); got != test.notReady {
			t.Errorf("%+v: replicas that are not ready = %q, want %q", test, got, test.notReady)
		}
	}
}

func TestReadinessOfOneReplica(t *testing.T) {
	const up, down = apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse
	readiness := Readiness{APIServices: []string{metricsAPI, shopAPI, "v1.apps"}, MaxNotReady: 0.5}
	c := replicaNamed(t, "a", map[string]map[string]apiregistrationv1.ConditionStatus{
		"a": {metricsAPI: down}, "b": {metricsAPI: up}, "c": {},
	})
	if err := c.CheckReadiness(readiness, shopAPI); err == nil || err.Error() != "APIService "+shopAPI+" does not exist" {
		t.Errorf("CheckReadiness(%s) error = %v, want an error that the APIService does not exist", shopAPI, err)
	}
	if err := c.CheckReadiness(readiness, "nonsense"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("CheckReadiness(nonsense) error = %v, want an error that contains %q", err, "does not exist")
	}
	if err := c.CheckReadiness(readiness, metricsAPI); err == nil || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("CheckReadiness of an APIService that another replica reaches: error = %v, want one that contains %q", err, "it hangs")
	}
	c.table.Store(routetable.NewTable(nil, false))
	if err := c.CheckReadiness(readiness, metricsAPI); err == nil || strings.Contains(err.Error(), "exist") {
		t.Errorf("CheckReadiness before the APIServices are read: error = %v, want one that does not contain %q", err, "exist")
	}
	c.table.Store(routetable.NewTable([]*routetable.Route{{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"}, Name: "v1.apps", Local: true}}, true))
	if err := c.CheckReadiness(readiness, "v1.apps"); err != nil {
		t.Errorf("CheckReadiness of a local APIService failed: %v, want no error", err)
	}
	// Verdicts of other replicas on another registration of that name do not count.
	again := routeTo(metricsAPI, down)
	again.UID = "another"
	c.table.Store(routetable.NewTable([]*routetable.Route{again}, true))
	err := c.CheckReadiness(readiness, metricsAPI)
	if tolerated, ok := errors.AsType[*ToleratedError](err); !ok || tolerated.Why != "it is available on no replica" {
		t.Errorf("CheckReadiness of an APIService that was registered again: error = %v, want a tolerated one, available on no replica", err)
	}
}

// A verdict that has just turned may have turned on the other replicas too, before this replica receives their verdicts.
func TestReadinessToleratesRecentTransition(t *testing.T) {
	const up, down = apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse
	readiness := Readiness{APIServices: []string{metricsAPI}, MaxNotReady: 0.5}
	synctest.Test(t, func(t *testing.T) {
		c := replicaNamed(t, "a", map[string]map[string]apiregistrationv1.ConditionStatus{"a": {metricsAPI: down}, "b": {metricsAPI: up}})
		c.transitions.add(metricsAPI, Transition{Time: time.Now(), From: up, To: down})
		err := c.CheckReadiness(readiness, metricsAPI)
		if _, tolerated := errors.AsType[*ToleratedError](err); !tolerated {
			t.Errorf("CheckReadiness right after the verdict turned: error = %v, want a tolerated one", err)
		}
		<-time.After(debounceTime)
		err = c.CheckReadiness(readiness, metricsAPI)
		if _, tolerated := errors.AsType[*ToleratedError](err); err == nil || tolerated {
			t.Errorf("CheckReadiness %s after the verdict turned: error = %v, want one that is not tolerated", debounceTime, err)
		}
	})
	if text := fmt.Sprint(&ToleratedError{metricsAPI, "it hangs", "so it is"}); !strings.Contains(text, metricsAPI) || !strings.Contains(text, "it hangs") {
		t.Errorf("ToleratedError = %q, want the APIService and %q", text, "it hangs")
	}
}
