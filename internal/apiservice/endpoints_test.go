package apiservice

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/transport"
)

func TestMinorityRequiresMajorityOfAllEndpoints(t *testing.T) {
	for _, c := range []struct {
		name   string
		served map[string]string
		want   []string
	}{
		{"all the same", map[string]string{"a": "x", "b": "x", "c": "x"}, nil},
		{"one differs", map[string]string{"a": "x", "b": "y", "c": "x"}, []string{"b"}},
		{"no majority of two", map[string]string{"a": "x", "b": "y"}, nil},
		{"no majority of three", map[string]string{"a": "x", "b": "y", "c": "z"}, nil},
		{"half is no majority", map[string]string{"a": "x", "b": "x", "c": "y", "d": "y"}, nil},
		{"what did not answer counts as an endpoint", map[string]string{"a": "x", "b": "y", "c": ""}, nil},
		{"what did not answer does not differ", map[string]string{"a": "x", "b": "x", "c": "x", "d": "", "e": "y"}, []string{"e"}},
		{"none answered", map[string]string{"a": "", "b": ""}, nil},
	} {
		if got := minority(c.served); !slices.Equal(got, c.want) {
			t.Errorf("%s: minority() = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestResourcesInIgnoresOrder(t *testing.T) {
	list := func(resources ...string) []byte {
		return []byte(`{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[` + strings.Join(resources, ",") + `]}`)
	}
	a, b := `{"name":"a","kind":"A","namespaced":true,"verbs":["get","list"]}`, `{"name":"b","kind":"B","namespaced":false,"verbs":["get"]}`
	if resourcesIn(list(a, b)) != resourcesIn(list(b, strings.Replace(a, `"get","list"`, `"list","get"`, 1))) {
		t.Error("resourcesIn differs for two orders of the same resources, want the same")
	}
	if resourcesIn(list(a)) == resourcesIn(list(a, b)) || resourcesIn(list(a)) == resourcesIn(list(strings.Replace(a, "true", "false", 1))) {
		t.Error("resourcesIn is the same for different resources, want different values")
	}
	for _, bad := range []string{"", "<html>", `{"kind":"Status"}`, string(list())} {
		if got := resourcesIn([]byte(bad)); got != "" {
			t.Errorf("resourcesIn(%q) = %q, want an empty string", bad, got)
		}
	}
}

// endpointsDouble is a backend with an endpoint for each document.
type endpointsDouble struct {
	mu        sync.Mutex
	documents map[string]string // resources, by address
	suspended map[string]error
}

func (d *endpointsDouble) Endpoints() []transport.Endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []transport.Endpoint
	for address := range d.documents {
		list = append(list, transport.Endpoint{Address: address})
	}
	return list
}

func (d *endpointsDouble) ProbeEndpoint(address string) http.RoundTripper {
	return roundTripFunc(func(*http.Request) (*http.Response, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		body := `{"resources":[{"name":"` + d.documents[address] + `","kind":"K","verbs":["get"]}]}`
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (d *endpointsDouble) Suspend(address string, why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, before := d.suspended[address]
	d.suspended[address] = why
	return !before
}

func (d *endpointsDouble) Reinstate(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.suspended, address)
}

func (d *endpointsDouble) Ejected() []transport.Ejection {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []transport.Ejection
	for address, why := range d.suspended {
		list = append(list, transport.Ejection{Address: address, Reason: why.Error()})
	}
	return list
}

func (d *endpointsDouble) serve(address, document string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.documents[address] = document
}

func TestEndpointWithOtherDiscoveryIsExcluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &endpointsDouble{
			documents: map[string]string{"192.0.2.1:443": "widgets", "192.0.2.2:443": "widgets", "192.0.2.3:443": "widgets"},
			suspended: map[string]error{},
		}
		b := &backendDouble{answer: well}
		var told atomic.Int64
		m := monitoredWith(t, b, func(m *monitor) {
			m.several, m.historyChanged = d, func([]schema.GroupVersion) { told.Add(1) }
		}, gvA)
		out := func() string {
			list, of := m.ejections()
			if of == 0 {
				return ""
			}
			return ejectedMessage(list, of)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := out(); got != "" {
			t.Fatalf("ejected endpoints while all agree = %q, want none", got)
		}
		d.serve("192.0.2.2:443", "gadgets")
		before := told.Load()
		time.Sleep(3 * endpointInterval) // rounds are a little less or more than the interval apart, so one can come just too early
		synctest.Wait()
		if got := out(); got != "1 of 3 endpoints is not used: 192.0.2.2:443 ("+errOtherDiscovery.Error()+")" || told.Load() == before {
			t.Errorf("ejected endpoints = %q with %d changes, want 192.0.2.2:443 and at least 1 change", got, told.Load()-before)
		}
		d.serve("192.0.2.2:443", "widgets")
		time.Sleep(2 * ejectedInterval)
		synctest.Wait()
		if got := out(); got != "" {
			t.Errorf("ejected endpoints after all agree again = %q, want none", got)
		}
	})
}

func TestEjectedEndpointsSetCondition(t *testing.T) {
	var ejected []transport.Ejection
	for i := range 7 {
		ejected = append(ejected, transport.Ejection{Address: fmt.Sprintf("192.0.2.%d:443", i), Reason: "read tcp 192.0.2.9:4000->192.0.2.1:443: broken"})
	}
	text := ejectedMessage(ejected, 20)
	if !strings.HasPrefix(text, "7 of 20 endpoints are not used: 192.0.2.0:443 (read tcp <endpoint>: broken), ") || !strings.HasSuffix(text, ", and 2 more") {
		t.Errorf("ejectedMessage() = %q, want 7 of 20 endpoints, five of them listed, and 2 more", text)
	}
	now := time.Now()
	spec := &apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{Name: "s", Namespace: "n"}}
	in := verdictInput{ejected: text, probes: history{}.record(outcome{at: now})}
	found := extraConditions(spec, in, now)
	if len(found) != 1 || found[0].Type != EndpointsInUse || found[0].Status != apiregistrationv1.ConditionFalse || found[0].Message != text {
		t.Errorf("conditions = %+v, want %s False with message %q", found, EndpointsInUse, text)
	}
	in.probes = history{}.record(outcome{at: now, failure: failureFromError(errors.New("broken"))})
	if found := extraConditions(spec, in, now); len(found) != 0 {
		t.Errorf("conditions of an unavailable backend = %+v, want none", found)
	}
}
