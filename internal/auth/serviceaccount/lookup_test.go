package serviceaccount

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestLiveLookupFallsBackToAPIServer(t *testing.T) {
	accounts := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	account := func(name, uid string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + uid)}}
	}
	if err := accounts.Add(account("known", "cached")); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset(account("known", "stored"), account("new", "stored"))
	live := LiveLookup{ServiceAccounts: corev1listers.NewServiceAccountLister(accounts), Client: client.CoreV1()}
	t.Run("what the informer has is not asked for", func(t *testing.T) {
		got, err := live.GetServiceAccount(t.Context(), "ns", "known")
		if err != nil || got.UID != "uid-cached" || len(client.Actions()) != 0 {
			t.Fatalf("GetServiceAccount(known) = %v, %v with %d requests, want the informer's object and 0", got, err, len(client.Actions()))
		}
	})
	t.Run("what it does not have yet is", func(t *testing.T) {
		if got, err := live.GetServiceAccount(t.Context(), "ns", "new"); err != nil || got.UID != "uid-stored" {
			t.Fatalf("GetServiceAccount(new) = %v, %v, want the stored object", got, err)
		}
	})
	t.Run("what nobody has is not found", func(t *testing.T) {
		if _, err := live.GetServiceAccount(t.Context(), "ns", "none"); !apierrors.IsNotFound(err) {
			t.Fatalf("GetServiceAccount(none) error = %v, want NotFound", err)
		}
	})
}
