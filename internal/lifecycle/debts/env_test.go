package debts

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	shop    = schema.GroupVersion{Group: "shop.example.com", Version: "v1"}
	service = "v1.shop.example.com"
)

// backend is an extension server with objects in namespaces, behind TLS, and with the faults of such servers.
type backend struct {
	server *httptest.Server

	mu      sync.Mutex // guards the fields below
	objects []metav1.PartialObjectMetadata
	deleted []types.UID
	// behind is the delay of the backend's clock.
	behind time.Duration
	// answers, if set, answers instead of the backend when it returns true.
	answers func(w http.ResponseWriter, r *http.Request) bool
	// unlisted leaves the resource out of the backend's discovery.
	unlisted bool
}

func newBackend(t *testing.T) *backend {
	b := &backend{}
	b.server = httptest.NewTLSServer(http.HandlerFunc(b.serve))
	t.Cleanup(func() {
		b.server.Client().CloseIdleConnections()
		b.server.Close()
	})
	return b
}

func (b *backend) put(o metav1.PartialObjectMetadata) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects = append(b.objects, o)
}

// object returns an object of a namespace, created at a time of the backend's clock.
func object(namespace, name string, uid types.UID, made time.Time) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid, CreationTimestamp: metav1.NewTime(made.Truncate(time.Second)),
	}}
}

func (b *backend) names() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, o := range b.objects {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return strings.Join(names, " ")
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Now().Add(-b.behind).UTC().Format(http.TimeFormat))
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis group version namespaces NS widgets NAME
	switch {
	case b.answers != nil && b.answers(w, r):
	case len(parts) == 3:
		b.discover(w)
	case len(parts) == 6 && r.Method == http.MethodGet:
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
		for _, o := range b.objects {
			if o.Namespace == parts[4] {
				list.Items = append(list.Items, o)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	case len(parts) == 7 && r.Method == http.MethodDelete:
		b.delete(w, r, parts[4], parts[6])
	default:
		answer(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func (b *backend) discover(w http.ResponseWriter) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: shop.String()}
	if !b.unlisted {
		list.APIResources = []metav1.APIResource{
			{Name: "widgets", Namespaced: true, Kind: "Widget", Verbs: metav1.Verbs{"get", "list", "delete", "deletecollection"}},
			{Name: "widgets/status", Namespaced: true, Kind: "Widget", Verbs: metav1.Verbs{"get"}},
			{Name: "regions", Kind: "Region", Verbs: metav1.Verbs{"get", "list", "delete"}},
			{Name: "prices", Namespaced: true, Kind: "Price", Verbs: metav1.Verbs{"get", "list"}},
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (b *backend) delete(w http.ResponseWriter, r *http.Request, namespace, name string) {
	var options metav1.DeleteOptions
	_ = json.NewDecoder(r.Body).Decode(&options)
	for i, o := range b.objects {
		if o.Namespace != namespace || o.Name != name {
			continue
		}
		if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != o.UID {
			answer(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		b.deleted = append(b.deleted, o.UID)
		if len(o.Finalizers) > 0 {
			now := metav1.Now()
			b.objects[i].DeletionTimestamp = &now
		} else {
			b.objects = append(b.objects[:i:i], b.objects[i+1:]...)
		}
		answer(w, http.StatusOK, "")
		return
	}
	answer(w, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func answer(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: int32(code), Reason: reason}
	if reason != "" {
		status.Status = metav1.StatusFailure
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

// fakeEtcd is etcd in memory. It outlives the stores that use it.
type fakeEtcd struct {
	mu       sync.Mutex // guards the fields below
	values   map[string][]byte
	replaced func(map[string][]byte)
}

func (k *fakeEtcd) Put(_ context.Context, key string, value []byte) error {
	k.change(func() { k.values[key] = value })
	return nil
}

func (k *fakeEtcd) Delete(_ context.Context, key string) error {
	k.change(func() { delete(k.values, key) })
	return nil
}

func (k *fakeEtcd) change(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string][]byte{}
	}
	change()
	if k.replaced != nil {
		k.replaced(k.values)
	}
}

func (k *fakeEtcd) Mirror(ctx context.Context, _ string, replaced func(map[string][]byte)) {
	k.mu.Lock()
	k.replaced = replaced
	replaced(k.values)
	k.mu.Unlock()
	<-ctx.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replaced = nil
}

// cleanerEnv is one process: a Store and a Cleaner over etcd and a backend.
type cleanerEnv struct {
	*Cleaner
	store *Store

	mu       sync.Mutex // guards the fields below
	standing APIServiceState
	known    []string
	changed  chan struct{}
}

// open starts a process that ends with the test, or when the returned function is called.
func open(t *testing.T, k *fakeEtcd, b *backend) (*cleanerEnv, func()) {
	o := &cleanerEnv{store: NewStore(k, zap.NewNop()), changed: make(chan struct{}), standing: APIServiceState{Registered: true, Ready: true}}
	o.Cleaner = NewCleaner(Config{
		Store: o.store, State: o.stands, Transport: func(string) (http.RoundTripper, error) { return redirect{b}, nil },
		KnownResources: func(schema.GroupVersion) []string { return o.known }, Changed: o.change,
		Leads: func() bool { return true }, Logger: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var joined sync.WaitGroup
	joined.Go(func() { _ = o.store.Run(ctx) })
	<-o.store.Ready()
	stop := sync.OnceFunc(func() {
		cancel()
		joined.Wait()
	})
	t.Cleanup(stop)
	return o, stop
}

func (o *cleanerEnv) stands(string) APIServiceState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.standing
}

func (o *cleanerEnv) change() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *cleanerEnv) become(s APIServiceState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.standing = s
	close(o.changed)
	o.changed = make(chan struct{})
}

// redirect sends requests for a backend to the test's backend.
type redirect struct{ b *backend }

func (t redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.b == nil {
		return nil, errors.New("connection refused")
	}
	out := r.Clone(r.Context())
	out.URL.Host = strings.TrimPrefix(t.b.server.URL, "https://")
	return t.b.server.Client().Transport.RoundTrip(out)
}

// owe records a debt of a namespace as of a time.
func (o *cleanerEnv) owe(t *testing.T, namespace string, uid types.UID, at time.Time) Debt {
	t.Helper()
	d := NewDebt(namespace, uid, shop, service, "a policy of the test")
	d.Since = at.UTC().Truncate(time.Second)
	if err := o.store.Record(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}
