package doctor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

// patience is how long a verdict may take: a hung backend has two attempts of 5 s.
const patience = time.Minute

// verdict returns the condition that the front door's controller sets for the objects of a test cluster.
func (w *testCluster) verdict() apiregistrationv1.APIServiceCondition {
	w.t.Helper()
	var objects []runtime.Object
	if w.service != nil {
		objects = append(objects, w.service)
	}
	if len(w.slice.Endpoints) > 0 {
		objects = append(objects, w.slice)
	}
	client := aggregatorfake.NewClientset(w.apiService.DeepCopy())
	api := aggregatorinformers.NewSharedInformerFactory(client, 0)
	core := kubeinformers.NewSharedInformerFactory(kubefake.NewClientset(objects...), 0)
	set := transport.New(transport.Options{AllowLoopback: true, Certificate: w.presented(), DialTimeout: w.cfg.DialTimeout})
	defer set.Close()
	controller := apiservice.New(apiservice.Config{
		Client: client.ApiregistrationV1().APIServices(), APIServices: api.Apiregistration().V1().APIServices(),
		Services: core.Core().V1().Services(), EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Transport: set, EndpointRouting: true,
		Metrics: metrics.NewAvailability(prometheus.NewRegistry()), Logger: zap.NewNop(),
	})
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	api.Start(ctx.Done())
	core.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		api.Shutdown()
		core.Shutdown()
	}()
	for {
		changed := controller.Changed()
		if route, ok := controller.Table().Lookup(schema.GroupVersion{Group: group, Version: served}); ok && route.Condition.Reason != "NotChecked" {
			return route.Condition
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.t.Fatal("no verdict of the API server arrived, want one")
		}
	}
}

// The sentence that stands in the condition, and with it in the Event and in the 503, stands in the doctor's report: when
// the API server has written it, and when it has not.
func TestReportContainsTheConditionMessage(t *testing.T) {
	for _, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := f.open(t)
			verdict := w.verdict()
			if f.unheard {
				if verdict.Status != apiregistrationv1.ConditionTrue {
					t.Errorf("verdict of the API server = %s: %s; want True", verdict.Status, verdict.Message)
				}
				return
			}
			if verdict.Status == apiregistrationv1.ConditionTrue {
				t.Fatal("verdict of the API server = True, want a fault")
			}
			silent := w.examine()
			if got := w.text(silent); !strings.Contains(got, verdict.Message) {
				t.Errorf("report without the condition =\n%s\nwant the verdict %s", got, verdict.Message)
			}
			w.apiService.Status.Conditions = []apiregistrationv1.APIServiceCondition{verdict}
			told := w.examine()
			if told.Broken == nil || told.Broken.Cause != verdict.Message || told.Broken.Hop != f.hop {
				t.Errorf("with the condition written: %+v, want hop %s and cause %s", told.Broken, f.hop, verdict.Message)
			}
		})
	}
}
