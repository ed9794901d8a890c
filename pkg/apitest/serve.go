package apitest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/pkg/extension"
)

// Serve hosts resources on an extension server in the process of the test, behind APIServices, with TLS and delegated
// authentication and authorization as in a cluster. It returns when the APIServices are available. They are removed at the
// end of the test.
func (e *Env) Serve(resources ...extension.Resource) *extension.Server {
	e.t.Helper()
	service := fmt.Sprintf("served-%d", e.serial.Add(1))
	server, err := extension.NewServer(extension.Options{
		Client: e.Config, BindAddress: "127.0.0.1", Register: true, ServiceNamespace: backendNamespace, ServiceName: service,
		Logger: e.Logger.Named("extension"),
	}, resources...)
	e.must("serve resources", err)
	client, err := clientset.NewForConfig(e.Config)
	e.must("client of APIServices", err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("served resources: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		e.t.Fatalf("serve resources: %v", err)
	}
	e.t.Cleanup(func() { e.unregister(client, service) })
	for _, r := range resources {
		gv := r.GroupVersion()
		e.waitAvailable(client, gv.Version+"."+gv.Group, apiregistrationv1.ConditionTrue)
	}
	return server
}

// unregister deletes a Service and the APIServices that refer to it.
func (e *Env) unregister(client *clientset.Clientset, service string) {
	ctx, cancel := e.context()
	defer cancel()
	apiServices := client.ApiregistrationV1().APIServices()
	all, err := apiServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		e.t.Errorf("unregister %s: %v", service, err)
		return
	}
	for _, a := range all.Items {
		if s := a.Spec.Service; s == nil || s.Name != service || s.Namespace != backendNamespace {
			continue
		}
		if err := apiServices.Delete(ctx, a.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Errorf("unregister %s: %v", a.Name, err)
		}
	}
	if err := e.client.CoreV1().Services(backendNamespace).Delete(ctx, service, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		e.t.Errorf("unregister %s: %v", service, err)
	}
}
