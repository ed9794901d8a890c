package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/e2e/compat"
)

// managers is the namespace of the leases.
const managers = "managers"

// manager is e2e/clients/manager, twice: one leads and the second one waits.
type manager struct{ *program }

func (*manager) party() *compat.Party { return controllerRuntime }

func (m *manager) begin(t *testing.T, w *testEnv) {
	w.namespace(t, managers)
	m.program = w.start(t, "manager", nil, "manager", w.path("admin.kubeconfig"), managers)
	controllerRuntime.LogsIn(m.log)
	book.Step(t, controllerRuntime, leads, func(t *testing.T) {
		m.awaits(t, "manager: leads")
		first := m.program
		m.program = w.start(t, "another-manager", nil, "manager", w.path("admin.kubeconfig"), managers)
		// The webhook receives service accounts when the manager's cache is filled and it does not lead yet.
		eventually(t, "another manager asks for the lease", func(ctx context.Context) error {
			lease, err := w.typed.CoordinationV1().Leases(managers).Get(ctx, "gadgets.portico.dev", metav1.GetOptions{})
			if err == nil && lease.Spec.HolderIdentity == nil {
				err = errors.New("the lease has no holder")
			}
			return err
		})
		m.leadsAfter(t, w, first)
	})
	book.Step(t, controllerRuntime, everyVerb, func(t *testing.T) { m.awaits(t, "verbs done") })
	book.Step(t, controllerRuntime, reconciles, func(t *testing.T) { m.works(t, w, "begun", "begun") })
}

// leadsAfter stops the leader after its checks of verbs, and waits until the second manager leads.
func (m *manager) leadsAfter(t *testing.T, w *testEnv, first *program) {
	t.Helper()
	first.awaits(t, "verbs done")
	if n := m.said.with("manager: leads"); n != 0 {
		t.Fatalf("%d managers lead besides the first, want 0; they log to %s and %s", n, first.log, m.log)
	}
	first.process.Ended = true
	if code, err := first.process.Stop(os.Interrupt); err != nil || code != 0 {
		t.Fatalf("exit status of the first manager = %d, %v; want 0; it logs to %s", code, err, first.log)
	}
	m.awaits(t, "manager: leads")
	controllerRuntime.LogsIn(m.log)
}

func gadget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clients.portico.dev/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color},
	}}
}

func (m *manager) works(t *testing.T, w *testEnv, namespace, name string) {
	w.namespace(t, namespace)
	ctx, key, of := context.Background(), namespace+"/"+name, w.dynamic.Resource(gadgets).Namespace(namespace)
	for _, g := range []*unstructured.Unstructured{gadget(name, "red"), gadget(name+"-kept", "red")} {
		eventually(t, "make gadget "+g.GetName(), func(ctx context.Context) error {
			_, err := of.Create(ctx, g, metav1.CreateOptions{})
			return err
		})
	}
	m.awaits(t, "gadget "+key+" is ready: red")
	m.awaits(t, "gadget "+key+"-kept is ready: red")
	if _, err := of.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	m.awaits(t, "gadget "+key+" is ready: blue")
	m.owned(t, w, namespace, name)
	if err := of.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.awaits(t, "gadget "+key+" is let go")
	eventually(t, "gadget "+key, func(ctx context.Context) error {
		if _, err := of.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errStill, err)
		}
		return nil
	})

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.typed.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.awaits(t, "account "+key+" is there")
	w.queue(t, key+"-managed", 3)
	m.awaits(t, "queue "+key+"-managed has 3")
	w.queue(t, key+"-managed", -1)
	m.awaits(t, "queue "+key+"-managed is gone")
}

// owned checks the manager's objects for a gadget: a ConfigMap with an owner reference, and an event.
func (m *manager) owned(t *testing.T, w *testEnv, namespace, name string) {
	t.Helper()
	made, err := w.typed.CoreV1().ConfigMaps(namespace).Get(context.Background(), name+"-color", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Data["color"] != "blue" || len(made.OwnerReferences) != 1 || made.OwnerReferences[0].Name != name {
		t.Errorf("ConfigMap of the gadget = %v with the owners %v, want the color blue and the gadget", made.Data, made.OwnerReferences)
	}
	eventually(t, "an event of gadget "+name, func(ctx context.Context) error {
		events, err := w.typed.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + name})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("none in %s", namespace)
		}
		return err
	})
}

func (m *manager) emptied(t *testing.T, w *testEnv, namespace, name string) {
	m.awaits(t, "gadget "+namespace+"/"+name+"-kept is let go")
	w.namespace(t, namespace)
}
