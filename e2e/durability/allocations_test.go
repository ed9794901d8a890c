package durability

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/pki"
)

// soon is the maximum time until the claims of a killed front door are free: its lease of 6 seconds, a check every 2 seconds,
// and a margin for a busy machine. Claims that are repaired only by age are in use for two to three minutes.
const soon = 45 * time.Second

// holdServices holds the creation of Services with the label held=yes after their addresses and ports are claimed, until the
// test ends. The returned channel receives a value for each held request.
func holdServices(t *testing.T, client kubernetes.Interface) <-chan struct{} {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "webhook", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{}, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if review.Request.DryRun == nil || !*review.Request.DryRun {
			held <- struct{}{}
			<-r.Context().Done()
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "would be held"}}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // fails if the client has disconnected
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Listener = tls.NewListener(server.Listener, pki.ServerConfig(pair))
	server.Start()
	t.Cleanup(server.Close)
	url, none, fail, seconds := "https://"+server.Listener.Addr().String(), admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(30)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "holding"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "holding.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority.PEM()},
			AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &seconds,
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"held": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			}},
		}},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	holds(t, client)
	return held
}

// holds waits until a front door calls the webhook.
func holds(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := client.CoreV1().Services("default").Create(ctx, heldService("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "would be held") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !pause(ctx, lookAgain) {
			t.Fatal("the webhook did not take effect in time, want it called")
		}
	}
}

// heldService is a Service that requests an address and a port, and that the webhook holds.
func heldService(name string) *corev1.Service {
	s := asking(name)
	s.Labels = map[string]string{"held": "yes"}
	return s
}

func asking(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.20", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
	}
}

// begin has a Service created that the webhook holds, and returns when it does.
func begin(t *testing.T, d *frontDoor, held <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() {
		_, err := d.client().CoreV1().Services("default").Create(ctx, heldService("half-made"), metav1.CreateOptions{})
		ended <- err
	}()
	select {
	case <-held:
	case err := <-ended:
		t.Fatalf("Create of the held Service returned %v, want it held by the webhook", err)
	case <-time.After(patience):
		t.Fatal("Create of the held Service did not reach the webhook in time, want it held")
	}
}

// free waits until another Service gets the addresses and ports of the half-created one.
func free(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for {
		_, err := client.CoreV1().Services("default").Create(ctx, asking("another"), metav1.CreateOptions{})
		if err == nil {
			t.Logf("free after %s", time.Since(began).Round(100*time.Millisecond))
			return
		}
		if !pause(ctx, 100*time.Millisecond) {
			t.Fatalf("claims of a killed front door are in use after %s: %v, want them free", soon, err)
		}
	}
}

// A front door that is killed after it claimed an address and a port, and before it stored the Service, has both free again
// within seconds of its next start.
func TestAddressesOfAKilledFrontDoorAreFreeAfterItsStart(t *testing.T) {
	d := newFrontDoor(t)
	d.start()
	held := holdServices(t, d.client())
	begin(t, d, held)
	if _, err := d.client().CoreV1().Services("default").Create(context.Background(), asking("another"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("Create with the claimed addresses = %v, want Invalid", err)
	}
	d.kill()
	d.start()
	free(t, d.client())
}

// With another replica they are free within seconds of the kill. The claims of the live replica for a Service that is not
// stored yet stay in use.
func TestAddressesOfAKilledReplicaAreFree(t *testing.T) {
	c := newCluster(t, 1)
	// The requests must be held for longer than the claims of a killed replica last.
	args := []string{"--etcd-servers", strings.Join(c.endpoints(), ","), "--request-timeout", "60s"}
	one := newFrontDoor(t, args...)
	one.start()
	two := newFrontDoor(t, args...)
	two.beside(one)
	two.start()
	held := holdServices(t, one.client())
	holds(t, two.client())
	begin(t, one, held)
	living := asking("living")
	living.Labels, living.Spec.ClusterIP, living.Spec.Ports[0].NodePort = map[string]string{"held": "yes"}, "10.0.0.21", 30081
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := two.client().CoreV1().Services("default").Create(ctx, living, metav1.CreateOptions{})
		ended <- err
	}()
	select {
	case <-held:
	case err := <-ended:
		t.Fatalf("Create of the held Service returned %v, want it held by the webhook", err)
	case <-time.After(patience):
		t.Fatal("Create of the held Service did not reach the webhook in time, want it held")
	}
	one.kill()
	free(t, two.client())
	theirs := asking("thief")
	theirs.Spec.ClusterIP, theirs.Spec.Ports[0].NodePort = "10.0.0.21", 0
	if _, err := two.client().CoreV1().Services("default").Create(ctx, theirs, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), "already allocated") {
		t.Errorf("Create with an address that a live replica has claimed = %v, want \"already allocated\"", err)
	}
}
