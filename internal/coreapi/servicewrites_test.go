package coreapi

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/coreapi/allocation"
)

// holdingWebhook answers after a release. The server calls it after the claims of addresses and ports and before the write.
type holdingWebhook struct {
	asked, release chan struct{}
	configuration  *admissionregistrationv1.ValidatingWebhookConfiguration
}

func newHoldingWebhook(t *testing.T) *holdingWebhook {
	t.Helper()
	h := &holdingWebhook{asked: make(chan struct{}), release: make(chan struct{})}
	g := newWebhookServer(t)
	answer := g.Config.Handler
	g.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case h.asked <- struct{}{}:
		case <-r.Context().Done():
		}
		select {
		case <-h.release:
		case <-r.Context().Done():
		}
		answer.ServeHTTP(w, r)
	})
	url, none, fail, seconds := g.URL+"/look", admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(30)
	bundle, err := base64.StdEncoding.DecodeString(g.bundle)
	if err != nil {
		t.Fatal(err)
	}
	h.configuration = &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "holding"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "holding.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
			AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &seconds,
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"held": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			}},
		}},
	}
	return h
}

// create creates a Service with the label that selects the webhook, and returns when the webhook holds the request.
func (h *holdingWebhook) create(t *testing.T, client kubernetes.Interface, s *corev1.Service) (ended <-chan error) {
	t.Helper()
	ctx := within(t)
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, h.configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The probes are dry runs until the webhook has taken effect.
	probe := s.DeepCopy()
	probe.Labels = map[string]string{"held": "yes"}
	for held := false; !held; {
		early, cancel := context.WithCancel(ctx)
		dry := make(chan error, 1)
		go func() {
			_, err := client.CoreV1().Services(s.Namespace).Create(early, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			dry <- err
		}()
		select {
		case <-h.asked:
			held = true
			cancel()
			<-dry
		case err := <-dry:
			if err != nil {
				t.Fatal(err)
			}
		}
		cancel()
	}
	done := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Services(s.Namespace).Create(ctx, probe, metav1.CreateOptions{})
		done <- err
	}()
	select {
	case <-h.asked:
	case err := <-done:
		t.Fatalf("the create ended with %v, want it held by the webhook", err)
	}
	return done
}

// A replica stops, or appears to stop, after it claimed an address and a port and before it stored the Service. Both are free
// for other Services after one check. The write of that replica fails if it continues. Claims of a running replica are kept.
func TestClaimsOfReplicaStoppedMidWriteAreReleased(t *testing.T) {
	t.Parallel()
	one := start(t, narrow, everyPlugin, func(c *Config) { c.Replica = "one" })
	two := one.second(t, func(c *Config) { c.Replica = "two" })
	client := two.typed(t, admin)
	namespace(t, client, "default")
	ctx := within(t)
	alive := func(name string) {
		if _, err := one.store.Client().KV.Put(ctx, one.store.LiveKey(name), ""); err != nil {
			t.Fatal(err)
		}
	}
	alive("one")
	alive("two")
	asked := func(name string) *corev1.Service {
		s := aService(name)
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, "10.9.0.20", 30007
		return s
	}
	webhook := newHoldingWebhook(t)
	ended := webhook.create(t, one.typed(t, admin), asked("first"))

	taken := func() {
		t.Helper()
		if _, err := client.CoreV1().Services("default").Create(ctx, asked("second"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("create with the claimed address: error = %v, want Invalid", err)
		}
	}
	taken()
	for range 3 { // the other replica is running
		if err := two.RepairAllocations(ctx); err != nil {
			t.Fatal(err)
		}
		if abandoned, err := two.AllocationsAbandoned(ctx); abandoned || err != nil {
			t.Errorf("AllocationsAbandoned with a running replica = %v, %v, want false", abandoned, err)
		}
	}
	taken()

	if err := one.store.Delete(ctx, "live/one"); err != nil { // as at the end of its lease
		t.Fatal(err)
	}
	if abandoned, err := two.AllocationsAbandoned(ctx); !abandoned || err != nil {
		t.Errorf("AllocationsAbandoned after the replica ended = %v, %v, want true", abandoned, err)
	}
	if err := two.RepairAllocations(ctx); err != nil {
		t.Fatal(err)
	}
	if abandoned, err := two.AllocationsAbandoned(ctx); abandoned || err != nil {
		t.Errorf("AllocationsAbandoned after the repair = %v, %v, want false", abandoned, err)
	}
	if _, err := client.CoreV1().Services("default").Create(ctx, asked("second"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create with the address of the ended replica failed: %v, want no error", err)
	}
	close(webhook.release)
	if err := <-ended; !apierrors.IsServiceUnavailable(err) {
		t.Errorf("error of the write whose claims were removed = %v, want ServiceUnavailable", err)
	}
	if _, err := client.CoreV1().Services("default").Get(ctx, "first", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("GET of that Service: error = %v, want NotFound", err)
	}
	if missing, leaked := two.compare(t); len(missing) > 0 || len(leaked) > 0 {
		t.Errorf("after the writes: missing %v, leaked %v, want none", missing, leaked)
	}
	entries, err := newInFlight(one.Server.cfg, one.store.Client().KV).All(ctx)
	if err != nil || len(entries) != 0 {
		t.Errorf("entries in flight = %v, %v, want none", entries, err)
	}
}

// Claims of ports also respect the fence.
func TestFencedPortClaimIsRejected(t *testing.T) {
	h := start(t, narrow)
	ctx := within(t)
	ports := allocation.NewEtcdPorts(h.store.Client().KV, h.store.OwnKey(portKeys))
	fenced, tx := h.repairer.Allocator().Begin(ctx)
	s := aService("a")
	s.Spec.Type = corev1.ServiceTypeNodePort
	if err := tx.Settle(apirequest.WithUser(fenced, admin), s, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Client().KV.Delete(ctx, allocation.Fence(fenced)); err != nil {
		t.Fatal(err)
	}
	var free int32 = 30000
	for free == s.Spec.Ports[0].NodePort {
		free++
	}
	if err := ports.Claim(fenced, free, allocation.Owner{}); !errors.Is(err, allocation.ErrFenced) {
		t.Errorf("fenced claim of a free port: error = %v, want %v", err, allocation.ErrFenced)
	}
	if err := ports.Claim(fenced, s.Spec.Ports[0].NodePort, allocation.Owner{}); !errors.Is(err, allocation.ErrTaken) {
		t.Errorf("fenced claim of a used port: error = %v, want %v", err, allocation.ErrTaken)
	}
}

// Keys of a newer release are not misinterpreted.
func TestUnreadableServiceKeysOfNewerReleaseAreKept(t *testing.T) {
	h := start(t, narrow)
	ctx := within(t)
	kv := h.store.Client().KV
	for key, value := range map[string]string{
		portKeys + "30001": "default/a/uid", portKeys + "30002": `{"version":2,"owner":"default/b/uid"}`, portKeys + "30003": "2/default/c/uid",
		portKeys + "30004": "", inFlightKeys + "x/1": "default/a", inFlightKeys + "x/2": `{"version":2,"of":"default/b"}`, inFlightKeys + "x/3": "2/default/c",
	} {
		if _, err := kv.Put(ctx, h.store.OwnKey(key), value); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := allocation.NewEtcdPorts(kv, h.store.OwnKey(portKeys)).List(ctx)
	if err != nil || len(taken) != 4 || taken[30001].Unreadable || taken[30001].Owner.Name != "a" {
		t.Errorf("List() = %v, %v, want 4 ports, 30001 with the owner a", taken, err)
	}
	for _, port := range []int32{30002, 30003, 30004} {
		if held := taken[port]; !held.Unreadable || held.Owner.Name != "" {
			t.Errorf("port %d = %+v, want unreadable without an owner", port, held)
		}
	}
	entries, err := newInFlight(h.Server.cfg, kv).All(ctx)
	var names []string
	for _, e := range entries {
		names = append(names, e.Owner.Name)
	}
	if err != nil || !slices.Equal(names, []string{"a", "", ""}) {
		t.Errorf("owners of the entries in flight = %q, %v, want a and two without a name", names, err)
	}
}
