package gateway

import (
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"portico.dev/internal/gateway/adoption"
)

var testGateway = adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: 443}

// adopted is an APIService that leads to the gateway, with both conditions.
func adopted(t *testing.T) *apiregistrationv1.APIService {
	t.Helper()
	port := int32(8443)
	o := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.a.example.com", ResourceVersion: "7"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "a.example.com", Version: "v1", InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "server", Port: &port},
		},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed"},
			{Type: adoption.BackendAvailable, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck"},
			{Type: "SomebodyElses", Status: apiregistrationv1.ConditionTrue},
		}},
	}
	if err := errors.Join(testGateway.Prepare(o), testGateway.Adopt(o, []byte("ours"))); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestViewShowsTheOriginalServer(t *testing.T) {
	v := view{gateway: testGateway}
	real := adopted(t)
	shown, ok := v.originalOf(real)
	if !ok || adoption.ServiceOf(shown.Spec.Service).String() != "ns/server:8443" || !shown.Spec.InsecureSkipTLSVerify || shown.Spec.CABundle != nil {
		t.Fatalf("view of an adopted APIService = %t, %+v; want the original server", ok, shown)
	}
	if c, _ := adoption.Condition(shown, apiregistrationv1.Available); c.Reason != "FailedDiscoveryCheck" {
		t.Errorf("condition Available in the view = %+v, want the gateway's", c)
	}
	if c, _ := adoption.Condition(real, apiregistrationv1.Available); c.Reason != "Passed" || !testGateway.Fronts(real) {
		t.Errorf("cached object = %+v, want no change", real)
	}
}

// The routing table writes its Available condition. The API server's condition of that name must not change.
func TestG7OnlyGatewayConditionsAreWritten(t *testing.T) {
	real := adopted(t)
	fake := aggregatorfake.NewClientset(real.DeepCopy())
	client := statusWriter{fake.ApiregistrationV1().APIServices()}
	shown, _ := view{gateway: testGateway}.originalOf(real)
	for i, c := range shown.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			shown.Status.Conditions[i].Status, shown.Status.Conditions[i].Reason = apiregistrationv1.ConditionTrue, "Back"
		}
	}
	if _, err := client.UpdateStatus(t.Context(), shown, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	written, err := fake.ApiregistrationV1().APIServices().Get(t.Context(), real.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[apiregistrationv1.APIServiceConditionType]string{apiregistrationv1.Available: "Passed", adoption.BackendAvailable: "Back", "SomebodyElses": ""}
	for _, c := range written.Status.Conditions {
		if reason, ok := want[c.Type]; !ok || c.Reason != reason {
			t.Errorf("written condition = %+v, want the expected reason", c)
		}
		delete(want, c.Type)
	}
	if len(want) > 0 {
		t.Errorf("missing conditions = %v, want none", want)
	}
	_, created := client.Create(t.Context(), shown, metav1.CreateOptions{})
	_, updated := client.Update(t.Context(), shown, metav1.UpdateOptions{})
	for what, err := range map[string]error{
		"create": created, "update": updated, "delete": client.Delete(t.Context(), shown.Name, metav1.DeleteOptions{}),
	} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("%s: error = %v, want errReadOnly", what, err)
		}
	}
}

func TestViewTranslatesWatchEvents(t *testing.T) {
	v := view{gateway: testGateway}
	foreign := adopted(t)
	if _, err := adoption.Release(foreign); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		event watch.Event
		want  watch.EventType // empty: not passed on
	}{
		"an adopted one is added":   {watch.Event{Type: watch.Added, Object: adopted(t)}, watch.Added},
		"an adopted one changes":    {watch.Event{Type: watch.Modified, Object: adopted(t)}, watch.Modified},
		"an adopted one is deleted": {watch.Event{Type: watch.Deleted, Object: adopted(t)}, watch.Deleted},
		"one that is not adopted":   {watch.Event{Type: watch.Added, Object: foreign}, ""},
		"one that is released":      {watch.Event{Type: watch.Modified, Object: foreign}, watch.Deleted},
		"a bookmark":                {watch.Event{Type: watch.Bookmark, Object: foreign}, watch.Bookmark},
		"an error":                  {watch.Event{Type: watch.Error, Object: &metav1.Status{}}, watch.Error},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := v.event(tt.event)
			if ok != (tt.want != "") || ok && got.Type != tt.want {
				t.Errorf("event = %t, %s; want %q", ok, got.Type, tt.want)
			}
			if o, is := got.Object.(*apiregistrationv1.APIService); is && ok && (got.Type == watch.Added || got.Type == watch.Modified) && testGateway.Fronts(o) {
				t.Error("the shown APIService has the gateway as its Service, want the original server")
			}
		})
	}
	list := v.list(&apiregistrationv1.APIServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []apiregistrationv1.APIService{*foreign, *adopted(t)}})
	if len(list.Items) != 1 || list.ResourceVersion != "9" {
		t.Errorf("list = %+v, want one APIService and the resource version 9", list)
	}
}

// A bubble fails if a goroutine remains in it.
func TestStoppedWatchEndsWithAnUnreadEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		incoming := watch.NewFake()
		w := newShownWatch(incoming, view{gateway: testGateway}.event)
		incoming.Add(adopted(t))
		synctest.Wait()
		w.Stop()
		w.Stop()
	})
}
