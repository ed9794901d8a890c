package durability

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
)

// One front door finds that a backend of an APIRoute fails too many requests. Every front door stops using it, also one that
// starts later, and all of them use it again when the APIRoute changes.
func TestABackendIsGivenUpByAllFrontDoors(t *testing.T) {
	c := newCluster(t, 1)
	var fronts []*frontDoor
	add := func() *frontDoor {
		d := newFrontDoor(t, "--etcd-servers", strings.Join(c.endpoints(), ","), "--bind-address", "127.0.0.1")
		if len(fronts) > 0 {
			d.beside(fronts[0])
		}
		d.start()
		fronts = append(fronts, d)
		return d
	}
	first, second := add(), add()
	config, err := first.config()
	if err != nil {
		t.Fatal(err)
	}
	startEcho(t, config, fronts)
	route := makeCanary(t, config)
	code := func(d *frontDoor, want int) {
		t.Helper()
		d.await(fmt.Sprintf("%d", want), func(ctx context.Context) error {
			got, body, err := d.get(ctx, echoPath)
			if err == nil && got != want {
				err = fmt.Errorf("%d %s", got, body)
			}
			return err
		})
	}
	for _, d := range fronts {
		code(d, http.StatusServiceUnavailable) // it has the APIRoute, and one failed request is not enough
	}
	code(first, http.StatusOK) // after three
	givenUp := func(d *frontDoor) {
		t.Helper()
		d.await("that the canary is given up", func(ctx context.Context) error {
			_, body, err := d.get(ctx, "/metrics")
			if want := `portico_apiroute_rolled_back{apiroute="v1.echo.example.com",backend="canary",rule="canary"} 1`; err == nil && !strings.Contains(body, want) {
				err = fmt.Errorf("its metrics have no %s", want)
			}
			return err
		})
		code(d, http.StatusOK)
	}
	givenUp(second)
	givenUp(add())

	if _, err := route(func(o *v1alpha1.APIRoute) { o.Spec.Rules[0].Rollback.ErrorPercent = 60 }); err != nil {
		t.Fatal(err)
	}
	code(second, http.StatusServiceUnavailable)
}

// makeCanary sends all requests for the extension server to a canary that has no Service. The function changes the APIRoute.
func makeCanary(t *testing.T, config *rest.Config) func(change func(*v1alpha1.APIRoute)) (*v1alpha1.APIRoute, error) {
	t.Helper()
	routes, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	none, requests := int32(0), int32(3)
	if _, err := routes.Create(t.Context(), &v1alpha1.APIRoute{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.echo.example.com"},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: "stable"}, {Name: "canary", Service: &v1alpha1.ServiceReference{Namespace: "default", Name: "canary"}}},
			Rules: []v1alpha1.APIRouteRule{{
				Name: "canary", BackendRefs: []v1alpha1.BackendRef{{Name: "stable", Weight: &none}, {Name: "canary"}},
				Rollback: &v1alpha1.Rollback{ErrorPercent: 50, MinRequests: &requests},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func(change func(*v1alpha1.APIRoute)) (*v1alpha1.APIRoute, error) {
		o, err := routes.Get(t.Context(), "v1.echo.example.com", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(o)
		return routes.Update(t.Context(), o, metav1.UpdateOptions{})
	}
}
