package e2e

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// autoscaler is the command autoscaler: it reads metrics of pods with the clients that a HorizontalPodAutoscaler's
// controller reads them with, and prints a line for each.
//
//	autoscaler resource NAMESPACE SELECTOR
//	autoscaler custom   NAMESPACE SELECTOR METRIC
//	autoscaler external NAMESPACE SELECTOR METRIC
func autoscaler(ts *testscript.TestScript, args []string) {
	config, err := clientcmd.BuildConfigFromFlags("", ts.Getenv("KUBECONFIG"))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	selector, err := labels.Parse(args[2])
	ts.Check(err)
	switch {
	case args[0] == "resource":
		err = printResource(ctx, ts.Stdout(), config, args[1], selector)
	case args[0] == "custom" && len(args) == 4:
		err = printCustom(ts.Stdout(), config, args[1], selector, args[3])
	case args[0] == "external" && len(args) == 4:
		err = printExternal(ts.Stdout(), config, args[1], selector, args[3])
	default:
		ts.Fatalf("kind of metrics %s is unknown or has no metric, want resource, custom or external", args[0])
	}
	ts.Check(err)
}

func printResource(ctx context.Context, to io.Writer, config *rest.Config, namespace string, selector labels.Selector) error {
	client, err := metrics.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.MetricsV1beta1().PodMetricses(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		for _, c := range pod.Containers {
			fmt.Fprintf(to, "%s %s %dm %dMi in %s\n", pod.Name, c.Name, c.Usage.Cpu().MilliValue(), c.Usage.Memory().Value()>>20, pod.Window.Duration)
		}
	}
	return nil
}

func printCustom(to io.Writer, config *rest.Config, namespace string, selector labels.Selector, metric string) error {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	client := custom_metrics.NewForConfig(config, mapper, custom_metrics.NewAvailableAPIsGetter(found))
	list, err := client.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, selector, metric, labels.Everything())
	if err != nil {
		return err
	}
	for _, v := range list.Items {
		fmt.Fprintf(to, "%s %s %d\n", v.DescribedObject.Name, v.Metric.Name, v.Value.MilliValue())
	}
	return nil
}

func printExternal(to io.Writer, config *rest.Config, namespace string, selector labels.Selector, metric string) error {
	client, err := external_metrics.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.NamespacedMetrics(namespace).List(metric, selector)
	if err != nil {
		return err
	}
	for _, v := range list.Items {
		fmt.Fprintf(to, "%s %v %s\n", v.MetricName, v.MetricLabels, v.Value.String())
	}
	return nil
}
