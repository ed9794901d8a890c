package coreapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	library "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/quota"
)

func withQuota(c *Config) { withLimited("")(c) }

// withLimited enables quotas with a configuration.
func withLimited(config string) func(*Config) {
	return func(c *Config) {
		c.Admission.Plugins = []admission.Plugin{{
			Name: "ResourceQuota", Default: true,
			New: func(d admission.Deps, _ io.Reader) (library.Interface, error) {
				limited, err := quota.LimitedResources(nil)
				if config != "" {
					limited, err = quota.LimitedResources(strings.NewReader(config))
				}
				return quota.New(d.Informers.ResourceQuotas().Lister(), d.Client, limited), err
			},
		}}
	}
}

func limits(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = quantity.MustParse(pairs[i+1])
	}
	return l
}

// enforced writes a quota with its status, as the controller does, and waits until all servers enforce it.
func enforced(t *testing.T, name string, hard corev1.ResourceList, clients ...kubernetes.Interface) {
	t.Helper()
	all := clients[0].CoreV1().ResourceQuotas("default")
	q, err := all.Create(within(t), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
	for limit := range hard {
		q.Status.Used[limit] = quantity.MustParse("0")
	}
	if _, err := all.UpdateStatus(within(t), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, client := range clients {
		var last error
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			last = refusedDry(within(t), client, hard)
			return apierrors.IsForbidden(last), nil
		}); err != nil {
			t.Fatalf("server %d: error of a create over the quota = %v, want Forbidden", i, last)
		}
	}
}

// refusedDry creates one of two kinds with the limit 0. Each quota of a test limits another kind, because only the first of
// several quotas is reported.
func refusedDry(ctx context.Context, client kubernetes.Interface, hard corev1.ResourceList) (err error) {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, is := hard["secrets"]; is {
		_, err = client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}}, dry)
		return err
	}
	_, err = client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}}, dry)
	return err
}

// Sixteen writers on two servers share a quota of ten. Ten creates succeed and the status of the quota is ten.
func TestTwoServersShareOneQuota(t *testing.T) {
	one := start(t, withQuota)
	two := one.second(t)
	clients := []kubernetes.Interface{one.typed(t, admin), two.typed(t, admin)}
	namespace(t, clients[0], "default")
	enforced(t, "q", limits("configmaps", "10", "secrets", "0"), clients...)
	var (
		writing sync.WaitGroup
		made    atomic.Int32
	)
	for i := range 16 {
		writing.Go(func() {
			for j := range 5 {
				name := fmt.Sprintf("c-%d-%d", i, j)
				_, err := clients[i%2].CoreV1().ConfigMaps("default").Create(within(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				switch {
				case err == nil:
					made.Add(1)
				case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: configmaps=1, used: configmaps=10, limited: configmaps=10"):
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if made.Load() != 10 {
		t.Errorf("%d creates succeeded, want 10", made.Load())
	}
	q, err := clients[0].CoreV1().ResourceQuotas("default").Get(within(t), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if used := q.Status.Used["configmaps"]; used.Value() != 10 {
		t.Errorf("configmaps in status.used = %s, want 10", used.String())
	}
}

// A quota is charged even if the server's cache does not have its status yet.
func TestQuotaWithStaleCacheIsCharged(t *testing.T) {
	hard := limits("configmaps", "1")
	stale := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := stale.Add(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "default"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}); err != nil {
		t.Fatal(err)
	}
	h := start(t, func(c *Config) {
		c.Admission.Plugins = []admission.Plugin{{
			Name: "ResourceQuota", Default: true,
			New: func(d admission.Deps, _ io.Reader) (library.Interface, error) {
				limited, err := quota.LimitedResources(nil)
				return quota.New(corelisters.NewResourceQuotaLister(stale), d.Client, limited), err
			},
		}}
	})
	client := h.typed(t, admin)
	namespace(t, client, "default")
	all := client.CoreV1().ResourceQuotas("default")
	q, err := all.Create(within(t), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: limits("configmaps", "0")}
	if _, err := all.UpdateStatus(within(t), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(name string) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(within(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := create("one"); err != nil {
		t.Fatal(err)
	}
	if err := create("two"); !apierrors.IsForbidden(err) {
		t.Errorf("create over the quota: error = %v, want Forbidden", err)
	}
}

// A request that one of two quotas refuses is charged to neither.
func TestRequestRefusedByOneQuotaChargesNeither(t *testing.T) {
	h := start(t, withQuota)
	client := h.typed(t, admin)
	namespace(t, client, "default")
	enforced(t, "a-wide", limits("configmaps", "10", "secrets", "0"), client)
	enforced(t, "b-narrow", limits("count/configmaps", "1", "count/serviceaccounts", "0"), client)
	var refused error
	for i := range 3 {
		_, err := client.CoreV1().ConfigMaps("default").Create(within(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, metav1.CreateOptions{})
		refused = errors.Join(refused, err)
	}
	if refused == nil || !strings.Contains(refused.Error(), "exceeded quota: b-narrow") {
		t.Errorf("errors of the creates = %v, want \"exceeded quota: b-narrow\"", refused)
	}
	q, err := client.CoreV1().ResourceQuotas("default").Get(within(t), "a-wide", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if used := q.Status.Used["configmaps"]; used.Value() != 1 {
		t.Errorf("configmaps in status.used of the other quota = %s, want 1", used.String())
	}
}

// A limited resource is refused without a covering quota, and counted with one.
func TestLimitedResourceWithoutQuotaIsForbidden(t *testing.T) {
	h := start(t, withLimited(`
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: configmaps
  matchContains: [count/configmaps]
- resource: pods
  matchScopes: [{scopeName: PriorityClass, operator: In, values: [precious]}]
`))
	client := h.typed(t, admin)
	namespace(t, client, "default")
	configMap := func(name string) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(within(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	pod := func(name, class string) error {
		_, err := client.CoreV1().Pods("default").Create(within(t), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{PriorityClassName: class, Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}},
		}, metav1.CreateOptions{})
		return err
	}
	mustSay := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("create over a limit: error = %v, want an error that contains %q", err, want)
		}
	}
	if err := pod("plain", ""); err != nil {
		t.Errorf("create of a pod that is not limited failed: %v, want no error", err)
	}
	mustSay(configMap("a"), `configmaps "a" is forbidden: insufficient quota to consume: count/configmaps`)
	mustSay(pod("a", "precious"), "insufficient quota to match these scopes: [{PriorityClass In [precious]}]")

	// The caches need not have the covering quota yet.
	hard := limits("count/configmaps", "1")
	q, err := client.CoreV1().ResourceQuotas("default").Create(within(t), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: limits("count/configmaps", "0")}
	if _, err := client.CoreV1().ResourceQuotas("default").UpdateStatus(within(t), q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := configMap("a"); err != nil {
		t.Errorf("create with a new covering quota failed: %v, want no error", err)
	}
	mustSay(configMap("b"), "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1")
	mustSay(pod("a", "precious"), "insufficient quota to match these scopes")
}
