package gateway

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/routetable"
)

var otherGateway = adoption.Service{Namespace: "other-gateway", Name: "portico-gateway", Port: 443}

func owner(t *testing.T, gateway adoption.Service, apiServices ...*apiregistrationv1.APIService) statusOwner {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, o := range apiServices {
		if err := indexer.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return statusOwner{gateway, aggregatorlisters.NewAPIServiceLister(indexer)}
}

func TestA55StatusHasOneOwner(t *testing.T) {
	ours := adopted(t)
	released := adopted(t)
	if _, err := adoption.Release(released); err != nil {
		t.Fatal(err)
	}
	prepared := released.DeepCopy()
	if err := testGateway.Prepare(prepared); err != nil {
		t.Fatal(err)
	}
	kind := func(label string) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.routing.portico.dev", Labels: map[string]string{automanagedLabel: label}}}
	}
	custom, frontDoor := kind("true"), kind(builtIn)
	for _, test := range []struct {
		name        string
		apiService  *apiregistrationv1.APIService // nil for none
		kind        *apiregistrationv1.APIService
		route       bool // this gateway owns the status of the APIRoute
		otherRoute  bool // and the second gateway
		conditions  bool // this gateway writes its conditions of the APIService
		otherWrites bool
	}{
		{"adopted, behind a kube-apiserver", ours, custom, true, false, true, false},
		{"adopted, behind a front door", ours, frontDoor, true, false, true, false},
		{"prepared", prepared, frontDoor, false, false, true, true},
		{"not adopted, behind a front door", released, frontDoor, false, false, true, true},
		{"no APIService, behind a front door", nil, frontDoor, false, false, true, true},
		// The status is the same for every writer.
		{"not adopted, behind a kube-apiserver", released, custom, true, true, true, true},
		{"no APIService, behind a kube-apiserver", nil, custom, true, true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := []*apiregistrationv1.APIService{test.kind}
			if test.apiService != nil {
				all = append(all, test.apiService)
			}
			here, there := owner(t, testGateway, all...), owner(t, otherGateway, all...)
			for _, check := range []struct {
				what      string
				got, want bool
			}{
				{"the gateway owns the status of the APIRoute", here.ownsAPIRoute(ours.Name), test.route},
				{"another gateway owns the status of the APIRoute", there.ownsAPIRoute(ours.Name), test.otherRoute},
				{"the gateway writes conditions of the APIService", here.ownsAPIService(ours.Name), test.conditions},
				{"another gateway writes conditions of the APIService", there.ownsAPIService(ours.Name), test.otherWrites},
			} {
				if check.got != check.want {
					t.Errorf("owner (%s) = %t, want %t", check.what, check.got, check.want)
				}
			}
		})
	}
}

// `aggregator release` removes the conditions and then the gateway's right to write them. The gateway may try it in between.
func TestForbiddenConditionWriteOnReleasedIsIgnored(t *testing.T) {
	forbidden := func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(apiregistrationv1.Resource("apiservices"), "v1.example.com", errors.New("no rule"))
	}
	released := adopted(t)
	if _, err := adoption.Release(released); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		object  *apiregistrationv1.APIService
		invalid bool // its annotation names no Service
		fails   bool
	}{
		{name: "released", object: released},
		{name: "adopted, with an invalid annotation", object: adopted(t), invalid: true, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.invalid {
				test.object.Annotations[adoption.OriginalServiceAnnotation] = "?"
			}
			test.object.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: adoption.BackendAvailable, Status: apiregistrationv1.ConditionTrue}}
			fake := aggregatorfake.NewClientset(test.object.DeepCopy())
			fake.PrependReactor("update", "apiservices", forbidden)
			u := &upkeep{gateway: testGateway, client: fake.ApiregistrationV1().APIServices(), wake: make(chan struct{}, 1)}
			if err := u.keepConditions(t.Context(), test.object); (err != nil) != test.fails {
				t.Errorf("keepConditions = %v, want an error: %t", err, test.fails)
			}
			if len(fake.Actions()) != 1 {
				t.Errorf("requests: %v, want one", fake.Actions())
			}
		})
	}
}

// The conditions that the upkeep of one gateway writes are not removed or changed by that of another.
func TestA55ConditionsOfOtherGatewayAreKept(t *testing.T) {
	unnamed := adopted(t)
	unnamed.Annotations = nil
	for name, o := range map[string]*apiregistrationv1.APIService{"adopted": adopted(t), "without an annotation": unnamed} {
		t.Run(name, func(t *testing.T) {
			fake := aggregatorfake.NewClientset(o.DeepCopy())
			write := func(gateway adoption.Service) {
				u := &upkeep{
					gateway: gateway, client: fake.ApiregistrationV1().APIServices(), wake: make(chan struct{}, 1),
					routes: func() *routetable.Table { return &routetable.Table{} },
				}
				now, err := u.client.Get(t.Context(), o.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				fake.ClearActions()
				if err := u.keepConditions(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			write(testGateway)
			write(otherGateway)
			if actions := fake.Actions(); len(actions) != 0 {
				t.Errorf("writes of another gateway = %v, want none", actions)
			}
			write(testGateway)
			if actions := fake.Actions(); len(actions) != 0 {
				t.Errorf("writes of an unchanged status = %v, want none", actions)
			}
		})
	}
}
