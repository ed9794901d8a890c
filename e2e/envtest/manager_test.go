package envtest

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// A project's usual suite: CRDs and webhooks from files, a manager with a controller, and a client that creates, reads and watches.
func TestManagerWithCRDsAndWebhooks(t *testing.T) {
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("testdata", "crds")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("testdata", "webhooks")}},
	}
	config := start(t, env)
	startManager(t, config, env.WebhookInstallOptions)

	ctx := testContext(t)
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gadgetKind)
	events, err := c.Watch(ctx, list, client.InNamespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()

	awaitWebhooks(t, c)
	if err := c.Create(ctx, newGadget("one", "purple")); !apierrors.IsInvalid(err) {
		t.Errorf("Create of an object outside the CRD's schema = %v, want Invalid", err)
	}
	if err := c.Create(ctx, newGadget("one", "red")); err == nil || !strings.Contains(err.Error(), "red is not wanted") {
		t.Errorf("Create of a red object = %v, want the validating webhook's refusal", err)
	}
	one := newGadget("one", "green")
	if err := c.Create(ctx, one); err != nil {
		t.Fatal(err)
	}
	if one.GetAnnotations()["mutated"] != "yes" {
		t.Errorf("object after its creation = %v, want the annotation of the mutating webhook", one.Object)
	}
	for event := range events.ResultChan() {
		g, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("event of the watch = %v, want an object", event)
		}
		if seen(g) == "green" {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		t.Fatalf("watch until the controller's status: %v, want an event with it", err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(one), one); err != nil || seen(one) != "green" {
		t.Errorf("Get of the object = %v %v, want the status green", err, one.Object)
	}
}

// awaitWebhooks waits until the server calls both webhooks. It receives their configurations through watches, so a write may
// arrive earlier.
func awaitWebhooks(t *testing.T, c client.Client) {
	t.Helper()
	poll(t, func() error {
		green := newGadget("asked", "green")
		if err := c.Create(t.Context(), green, client.DryRunAll); err != nil {
			return err
		}
		if green.GetAnnotations()["mutated"] != "yes" {
			return errors.New("the mutating webhook is not asked")
		}
		if err := c.Create(t.Context(), newGadget("asked", "red"), client.DryRunAll); err == nil {
			return errors.New("the validating webhook is not asked")
		}
		return nil
	})
}

// startManager runs a manager with the webhooks and the controller until the test ends, and waits until its webhooks are served.
func startManager(t *testing.T, config *rest.Config, hooks envtest.WebhookInstallOptions) {
	t.Helper()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := manager.GetWebhookServer()
	server.Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(mutate)})
	server.Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(validate)})
	// Names are of a process, and -count runs the test several times in one.
	options := controller.Options{SkipNameValidation: new(true)}
	if err := ctrl.NewControllerManagedBy(manager).For(newGadget("", "")).Named(t.Name()).WithOptions(options).Complete(&gadgets{manager.GetClient()}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v, want no error", err)
		}
	})
	poll(t, func() error { return server.StartedChecker()(&http.Request{}) })
}

func mutate(_ context.Context, r admission.Request) admission.Response {
	g := &unstructured.Unstructured{}
	if err := g.UnmarshalJSON(r.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	g.SetAnnotations(map[string]string{"mutated": "yes"})
	changed, err := g.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(r.Object.Raw, changed)
}

func validate(_ context.Context, r admission.Request) admission.Response {
	g := &unstructured.Unstructured{}
	if err := g.UnmarshalJSON(r.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	color, _, err := unstructured.NestedString(g.Object, "spec", "color")
	switch {
	case err != nil:
		return admission.Errored(http.StatusBadRequest, err)
	case r.Operation == admissionv1.Create && color == "red":
		return admission.Denied("red is not wanted")
	}
	return admission.Allowed("")
}

// gadgets writes the color of each gadget to its status.
type gadgets struct{ client client.Client }

func (r *gadgets) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	g := newGadget("", "")
	if err := r.client.Get(ctx, request.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	color, _, err := unstructured.NestedString(g.Object, "spec", "color")
	if err != nil || seen(g) == color {
		return ctrl.Result{}, err
	}
	if err := unstructured.SetNestedField(g.Object, color, "status", "seen"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.client.Status().Update(ctx, g)
}
