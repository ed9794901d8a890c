// Package dispatchtest creates routes for the tests of handlers.
package dispatchtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/pki"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// Backend starts a TLS extension server that runs until the test ends. A nil handler responds with its name and the
// user's name.
func Backend(t testing.TB, set *transport.Set, name string, h http.Handler) *transport.Backend {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, name+" "+r.Header.Get("X-Remote-User"))
		})
	}
	authority, err := pki.NewAuthority("backends")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: name, DNSNames: []string{name + ".ns.svc"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = pki.ServerConfig(pair)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	b, err := set.Backend(transport.Spec{
		Name: "ns/" + name + ":443", ServerName: name + ".ns.svc", CABundle: authority.PEM(), LoopbackOK: true,
		Endpoints: []transport.Endpoint{{Address: srv.Listener.Addr().String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Condition returns a condition with a transition time in the past.
func Condition(status apiregistrationv1.ConditionStatus, reason, message string) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)),
	}
}

// Table returns a table with one APIRoute that has these handlers as backends. A backend with a nil handler is not
// available.
func Table(t testing.TB, set *transport.Set, text string, handlers map[string]http.Handler) *routetable.Table {
	t.Helper()
	object := &v1alpha1.APIRoute{}
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	compiled, err := routing.Compile(object, func(string) (labels.Set, bool) { return nil, false })
	if err != nil {
		t.Fatal(err)
	}
	route := &routetable.Route{
		GroupVersion: compiled.GroupVersion, Name: object.Name, Routing: compiled, Condition: Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
	}
	for i, b := range compiled.Backends {
		part := &routetable.Route{GroupVersion: compiled.Version(i), Name: object.Name + "/" + b.Name, Of: object.Name}
		if h := handlers[b.Name]; h != nil {
			part.Backend, part.Condition = Backend(t, set, b.Name, h), Condition(apiregistrationv1.ConditionTrue, "Passed", "")
		} else {
			part.Condition = Condition(apiregistrationv1.ConditionFalse, "MissingEndpoints", "it has none")
		}
		route.Parts = append(route.Parts, part)
	}
	if len(handlers) == 0 {
		route.Condition = Condition(apiregistrationv1.ConditionFalse, "MissingEndpoints", "none of them has any")
	}
	return routetable.NewTable([]*routetable.Route{route}, true)
}
