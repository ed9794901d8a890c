package coreapi

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

func apiService(name, group, version string, service *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{
		Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 10, Service: service,
	}}
}

func TestAPIServices(t *testing.T) {
	h := start(t)
	client, err := aggregator.NewForConfig(h.ClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	services := client.ApiregistrationV1().APIServices()
	ctx := within(t)
	backend := &apiregistrationv1.ServiceReference{Namespace: "work", Name: "backend"}

	t.Run("a local one is available at once", func(t *testing.T) {
		got, err := services.Create(ctx, apiService("v1.local.example.com", "local.example.com", "v1", nil), metav1.CreateOptions{})
		if err != nil || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Reason != "Local" ||
			got.Status.Conditions[0].Status != apiregistrationv1.ConditionTrue {
			t.Fatalf("create of a local APIService = %+v, %v, want one condition with reason Local and status True", got, err)
		}
	})
	t.Run("a remote one comes without a status, and with a port", func(t *testing.T) {
		service := apiService("v1.remote.example.com", "remote.example.com", "v1", backend)
		service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: "True"}}
		got, err := services.Create(ctx, service, metav1.CreateOptions{})
		if err != nil || len(got.Status.Conditions) != 0 || got.Spec.Service.Port == nil || *got.Spec.Service.Port != 443 {
			t.Fatalf("create of a remote APIService = %+v, %v, want no condition and port 443", got, err)
		}
	})
	t.Run("a name that does not say group and version is refused", func(t *testing.T) {
		_, err := services.Create(ctx, apiService("v1.other", "remote.example.com", "v1", backend), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Fatalf("create with a name that does not match its group and version: error = %v, want Invalid", err)
		}
	})
	t.Run("a status is written through its subresource only", func(t *testing.T) {
		got, err := services.Get(ctx, "v1.remote.example.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		down := []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: "False", Reason: "Down"}}
		got.Status.Conditions = down
		got.Spec.VersionPriority = 11
		if got, err = services.Update(ctx, got, metav1.UpdateOptions{}); err != nil || len(got.Status.Conditions) != 0 || got.Spec.VersionPriority != 11 {
			t.Fatalf("update of the spec and the status = %+v, %v, want no condition and versionPriority 11", got, err)
		}
		got.Status.Conditions = down
		got.Spec.VersionPriority = 12
		got.Labels = map[string]string{"a": "b"}
		if got, err = services.UpdateStatus(ctx, got, metav1.UpdateOptions{}); err != nil || len(got.Status.Conditions) != 1 ||
			got.Spec.VersionPriority != 11 || len(got.Labels) != 0 {
			t.Fatalf("update of the status, a label and the spec = %+v, %v, want one condition, versionPriority 11 and no label", got, err)
		}
	})
	t.Run("a status that says neither yes nor no is refused", func(t *testing.T) {
		got, err := services.Get(ctx, "v1.remote.example.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: "Perhaps"}}
		if _, err := services.UpdateStatus(ctx, got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatalf("status with the condition status Perhaps: error = %v, want Invalid", err)
		}
	})
	t.Run("an update without a version, and one of nothing, are refused", func(t *testing.T) {
		blind := apiService("v1.local.example.com", "local.example.com", "v1", nil)
		if _, err := services.Update(ctx, blind, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatalf("update without a resourceVersion: error = %v, want Invalid", err)
		}
		if _, err := services.Update(ctx, apiService("v1.x.example.com", "x.example.com", "v1", nil), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("update of a missing APIService: error = %v, want NotFound", err)
		}
	})
	t.Run("an applied status belongs to its applier", func(t *testing.T) {
		_, err := services.Patch(ctx, "v1.remote.example.com", types.ApplyPatchType, []byte(`{"apiVersion":"apiregistration.k8s.io/v1",
			"kind":"APIService","status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":null}]}}`),
			metav1.PatchOptions{FieldManager: "prober", Force: new(true)}, "status")
		if err != nil {
			t.Fatal(err)
		}
	})
}
