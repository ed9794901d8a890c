package fleet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

// The states are those of this replica, except the rights, which are in the status.
func TestStatesOfClusters(t *testing.T) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.Cluster{}, 0, cache.Indexers{})
	f := New(Config{Clusters: informer, Logger: zap.NewNop()})
	all := &members{byName: map[string]*member{}}
	f.members.Store(all)
	ready := runCluster(t)
	add := func(name string, status metav1.ConditionStatus, reason string, m *member) {
		object := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPermitted, Status: status, Reason: reason}}
		}
		if err := informer.GetStore().Add(object); err != nil {
			t.Fatal(err)
		}
		if m != nil {
			all.byName[name] = m
		}
	}
	add("a-permitted", metav1.ConditionTrue, "RightsGranted", &member{link: ready})
	add("b-powerless", metav1.ConditionFalse, v1alpha1.ReasonMissingRights, &member{link: ready})
	add("c-refused", metav1.ConditionUnknown, "CheckFailed", &member{link: ready})
	add("d-keyless", metav1.ConditionUnknown, v1alpha1.ReasonClusterUnavailable, &member{link: ready, problem: errors.New("no Secret")})
	add("e-unserved", "", "", nil)
	add("f-invalid", "", "", &member{invalid: errors.New("no certificate in caBundle")})
	want := []metrics.ClusterState{
		{Name: "a-permitted", Available: true, Permitted: new(true), Ready: 1, NotReady: 1},
		{Name: "b-powerless", Available: true, Permitted: new(false), Ready: 1, NotReady: 1},
		{Name: "c-refused", Available: true, Permitted: new(false), Ready: 1, NotReady: 1},
		{Name: "d-keyless", Ready: 1, NotReady: 1},
		{Name: "e-unserved"},
		{Name: "f-invalid"},
	}
	if got := f.States(); !reflect.DeepEqual(got, want) {
		t.Errorf("States() = %+v\nwant %+v", got, want)
	}
	if err := informer.GetStore().Delete(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a-permitted"}}); err != nil {
		t.Fatal(err)
	}
	if got := f.States(); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("States() after a deletion = %+v\nwant %+v", got, want[1:])
	}
}

// runCluster returns the connection to a cluster with one API server that is ready and one that is not.
func runCluster(t *testing.T) *link {
	t.Helper()
	var endpoints []string
	for _, code := range []int{http.StatusOK, http.StatusInternalServerError} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(server.Close)
		_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, "127.0.0.1:"+port)
	}
	l := &link{}
	var err error
	if l.Cluster, err = cluster.New(cluster.Config{
		Name: "test", Server: cluster.Server{Endpoints: endpoints, Insecure: true}, Credentials: &l.credentials,
		Transport: transport.Options{AllowLoopback: true}, Logger: zap.NewNop(),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	for {
		changed, s := l.Changed(), l.State()
		if len(s.Endpoints) == 2 && s.Endpoints[0].Ready && strings.Contains(s.Endpoints[1].Message, "500") {
			return l
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("state = %+v, want the first API server ready", s)
		}
	}
}
