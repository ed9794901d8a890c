//go:build incumbent

package behind

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer keeps a cache of the declared queues while either side is stopped and started.
func (s *installed) informer(t *testing.T) {
	config := rest.CopyConfig(s.Admin)
	config.Timeout = 0
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	queues := factory.ForResource(schema.GroupVersionResource{Group: "stats.example.com", Version: "v1", Resource: "queues"}).Informer()
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	depth := func(want int64) {
		t.Helper()
		s.write("queues.json", fmt.Sprintf(`{"data": [{"id": "orders", "team": "shop", "depth": %d}]}`, want))
		eventually(t, fmt.Sprintf("the cache says %d", want), func() error { return cached(queues, want) })
	}
	depth(4)
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	depth(5)
	if err := s.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	depth(6)
	eventually(t, "available", func() error { return s.available(t) })
	t.Logf("from the start of kube-apiserver: %s", time.Since(began).Round(10*time.Millisecond))
}

func cached(queues cache.SharedIndexInformer, want int64) error {
	object, exists, err := queues.GetStore().GetByKey("shop/orders")
	if err != nil || !exists {
		return fmt.Errorf("there: %v, %v", exists, err)
	}
	got, _, err := unstructured.NestedInt64(object.(*unstructured.Unstructured).Object, "status", "depth")
	if err != nil || got != want {
		return fmt.Errorf("it says %d, %v", got, err)
	}
	return nil
}
