package quotas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// quotaNamespace is a namespace with one quota, whose writers charge the quota as admission does and store later.
type quotaNamespace struct {
	t      *testing.T
	client *fake.Clientset
	status *Controller

	mu       sync.Mutex // guards the fields below
	stored   map[corev1.ResourceName]int64
	underway map[corev1.ResourceName]int64 // charged, and neither stored nor failed
	took     time.Duration                 // duration of a count
}

func newQuotaNamespace(t *testing.T, hard corev1.ResourceList) *quotaNamespace {
	n := &quotaNamespace{
		t: t, stored: map[corev1.ResourceName]int64{}, underway: map[corev1.ResourceName]int64{},
		client: fake.NewSimpleClientset(&corev1.ResourceQuota{ //nolint:staticcheck // no apply here
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q", UID: "q", ResourceVersion: "1"},
			Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		}),
	}
	quotas := corev1.SchemeGroupVersion.WithResource("resourcequotas")
	n.client.PrependReactor("update", "resourcequotas", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*corev1.ResourceQuota).DeepCopy()
		there, err := n.client.Tracker().Get(quotas, sent.Namespace, sent.Name)
		if err != nil {
			return true, nil, err
		}
		version := there.(*corev1.ResourceQuota).ResourceVersion
		if sent.ResourceVersion != version {
			return true, nil, apierrors.NewConflict(quotas.GroupResource(), sent.Name, errors.New("changed"))
		}
		next, err := strconv.Atoi(version)
		if err != nil {
			return true, nil, err
		}
		sent.ResourceVersion = strconv.Itoa(next + 1)
		n.mustCover(sent)
		return true, sent, n.client.Tracker().Update(quotas, sent, sent.Namespace)
	})
	factory := informers.NewSharedInformerFactory(n.client, 0)
	n.status = New(Config{
		Client: n.client, Quotas: factory.Core().V1().ResourceQuotas(), Measure: n.measure,
		Kinds:    func(*corev1.ResourceQuota) []schema.GroupVersionResource { return nil },
		Metadata: metadatafake.NewSimpleMetadataClient(runtime.NewScheme()),
		Changed:  func() <-chan struct{} { return nil },
		Logger:   zaptest.NewLogger(t),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var joined sync.WaitGroup
	factory.Core().V1().ResourceQuotas().Informer()
	factory.Start(ctx.Done())
	joined.Go(func() {
		if err := n.status.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		joined.Wait()
		factory.Shutdown()
	})
	return n
}

// mustCover checks every status before it is written: it must cover the stored objects and the writes that are under way.
func (n *quotaNamespace) mustCover(q *corev1.ResourceQuota) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, used := range q.Status.Used {
		if needed := n.stored[name] + n.underway[name]; used.Value() < needed {
			n.t.Errorf("after %s the status has %s %s in use, want at least %d stored and %d under way", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), used.String(), name, n.stored[name], n.underway[name])
		}
	}
}

func (n *quotaNamespace) measure(_ context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	n.mu.Lock()
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		used[name] = *resource.NewQuantity(n.stored[name], resource.DecimalSI)
	}
	took := n.took
	n.mu.Unlock()
	time.Sleep(took) // in synctest's time: the duration of a count of many objects
	return used, nil
}

func (n *quotaNamespace) used(name corev1.ResourceName) int64 {
	q, err := n.client.CoreV1().ResourceQuotas("team").Get(context.Background(), "q", metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	used := q.Status.Used[name]
	return used.Value()
}

// create charges, and stores after a time unless it fails. It reports whether the quota had room.
func (n *quotaNamespace) create(name corev1.ResourceName, under time.Duration, fails bool) bool {
	all := n.client.CoreV1().ResourceQuotas("team")
	for {
		q, err := all.Get(context.Background(), "q", metav1.GetOptions{})
		if err != nil {
			n.t.Error(err)
			return false
		}
		used := q.Status.Used[name]
		hard := q.Status.Hard[name]
		if used.Cmp(hard) >= 0 {
			return false
		}
		used.Add(*resource.NewQuantity(1, resource.DecimalSI))
		q.Status.Used[name] = used
		n.add(n.underway, name, 1) // before the charge is visible
		_, err = all.UpdateStatus(context.Background(), q, metav1.UpdateOptions{})
		if err == nil {
			break
		}
		n.add(n.underway, name, -1)
		if !apierrors.IsConflict(err) {
			n.t.Error(err)
			return false
		}
	}
	time.Sleep(under)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.underway[name]--
	if !fails {
		n.stored[name]++
	}
	return true
}

func (n *quotaNamespace) add(to map[corev1.ResourceName]int64, name corev1.ResourceName, by int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to[name] += by
}

// delete removes one object, as after a watch event, and reports whether there was one.
func (n *quotaNamespace) delete(name corev1.ResourceName) bool {
	n.mu.Lock()
	there := n.stored[name] > 0
	if there {
		n.stored[name]--
	}
	n.mu.Unlock()
	if there {
		n.status.enqueueAll("team")
	}
	return there
}

func hardLimits(of map[corev1.ResourceName]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, n := range of {
		list[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// A deletion makes room within a second, although other writes change the status every 0.3 seconds.
func TestFrequentlyWrittenStatusIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newQuotaNamespace(t, hardLimits(map[corev1.ResourceName]int64{"configmaps": 5, "secrets": 1000}))
		time.Sleep(2 * time.Second)
		for range 5 {
			if !n.create("configmaps", 0, false) {
				t.Fatal("create() in a quota with room = false, want true")
			}
		}
		stop := make(chan struct{})
		var writing sync.WaitGroup
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
				}
				n.create("secrets", 10*time.Millisecond, false)
			}
		})
		time.Sleep(10 * time.Second)
		for range 4 {
			n.delete("configmaps")
		}
		time.Sleep(1100 * time.Millisecond)
		if used := n.used("configmaps"); used != 1 {
			t.Errorf("status 1.1 s after four of five configmaps were deleted = %d, want 1", used)
		}
		close(stop)
		writing.Wait()
	})
}

// A failed write releases its charge, no matter how busy the quota is.
func TestChargesOfFailedWritesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newQuotaNamespace(t, hardLimits(map[corev1.ResourceName]int64{"configmaps": 5, "secrets": 1000}))
		time.Sleep(2 * time.Second)
		for range 5 {
			n.create("configmaps", 0, true)
		}
		for range 5 {
			n.create("secrets", 300*time.Millisecond, false)
		}
		time.Sleep(time.Second)
		if used := n.used("configmaps"); used != 0 {
			t.Errorf("status after all writes failed = %d configmaps, want 0", used)
		}
	})
}

// Objects are created, deleted and fail concurrently, with counts that take between nothing and seconds. The status always
// covers the stored objects and the writes under way (mustCover), no limit is exceeded, a deletion makes room within a second
// plus the time of a count, and the final status equals the stored objects.
func TestConcurrentChangesNeverExceedLimit(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 15))
				hard := map[corev1.ResourceName]int64{"configmaps": 3 + random.Int64N(6), "secrets": 3 + random.Int64N(40)}
				n := newQuotaNamespace(t, hardLimits(hard))
				took := []time.Duration{0, 5 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second}[seed%4]
				n.mu.Lock()
				n.took = took
				n.mu.Unlock()
				time.Sleep(5 * time.Second)
				names := []corev1.ResourceName{"configmaps", "secrets"}
				var writing sync.WaitGroup
				for range 300 {
					time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
					name := names[random.IntN(2)]
					if random.IntN(5) < 2 {
						n.delete(name)
					} else {
						under, fails := time.Duration(random.Int64N(int64(900*time.Millisecond))), random.IntN(8) == 0
						writing.Go(func() { n.create(name, under, fails) })
					}
					n.mu.Lock()
					for name, limit := range hard {
						if n.stored[name] > limit {
							t.Errorf("%d %s are stored, want at most %d", n.stored[name], name, limit)
						}
					}
					n.mu.Unlock()
				}
				writing.Wait()
				// Two counts: the one that is under way, and one more after the room that it left is known.
				time.Sleep(2*inFlightTime + (2+2*restFactor)*took)
				for _, name := range names {
					used := n.used(name)
					n.mu.Lock()
					if used != n.stored[name] {
						t.Errorf("final status of %s = %d, want %d", name, used, n.stored[name])
					}
					n.mu.Unlock()
				}
			})
		})
	}
}
