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
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"portico.dev/internal/pki"
)

// slowHook is an admission webhook that holds each request about an object until the test releases it, and always allows it.
type slowHook struct {
	url    string
	bundle []byte

	mu    sync.Mutex // guards holds
	holds map[string]*hookHold
}

// hookHold holds the requests about one object. Dry-run requests are not held.
type hookHold struct {
	once             sync.Once
	entered, release chan struct{}
}

func newSlowHook(t *testing.T) *slowHook {
	t.Helper()
	authority, err := pki.NewAuthority("webhooks")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "webhook", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	h := &slowHook{bundle: authority.PEM(), holds: map[string]*hookHold{}}
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair))
	s.Start()
	t.Cleanup(s.Close)
	h.url = "https://" + s.Listener.Addr().String()
	return h
}

func (h *slowHook) hold(name string) *hookHold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds[name] == nil {
		h.holds[name] = &hookHold{entered: make(chan struct{}), release: make(chan struct{})}
	}
	return h.holds[name]
}

func (h *slowHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if dry := review.Request.DryRun; dry != nil && *dry {
		answer.Warnings = []string{"the webhook was asked"}
	} else {
		held := h.hold(review.Request.Name)
		held.once.Do(func() { close(held.entered) })
		select {
		case <-held.release:
		case <-r.Context().Done():
			return
		}
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // fails if the client has disconnected
}

// register configures the webhook for ConfigMaps with the label held.
func (h *slowHook) register(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	sideEffects := admissionregistrationv1.SideEffectClassNone
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "slow.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &h.url, CABundle: h.bundle},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"held": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](30),
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// heeded waits until a front door calls the webhook.
func heeded(d *frontDoor) {
	d.t.Helper()
	client := d.client()
	d.await("the webhook is asked", func(ctx context.Context) error {
		var warned warnings
		config, err := d.config()
		if err != nil {
			return err
		}
		config.WarningHandlerWithContext = &warned
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, heldMap("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !warned.any() {
			err = fmt.Errorf("it was not asked")
		}
		return err
	})
}

type warnings struct {
	mu   sync.Mutex // guards seen
	seen int
}

func (w *warnings) HandleWarningHeaderWithContext(context.Context, int, string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
}

func (w *warnings) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen > 0
}

func heldMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"held": "yes"}}}
}

// A webhook holds Creates at two replicas while their namespace is deleted, the replica that finalizes it is killed, and a new
// namespace gets the name. The killed replica's object is never stored, and the other replica's Create is refused.
func TestACreateThatIsHeldWhileAReplicaDiesAndItsNamespaceGoes(t *testing.T) {
	c := newCluster(t, 1)
	args := []string{"--etcd-servers", strings.Join(c.endpoints(), ","), "--request-timeout", "60s"}
	one := newFrontDoor(t, args...)
	one.start() // and leads
	two := newFrontDoor(t, args...)
	two.beside(one)
	two.start()
	hook := newSlowHook(t)
	hook.register(t, one.client())
	heeded(one)
	heeded(two)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	for _, when := range []string{"begins to go", "has gone", "is another one"} {
		t.Run("the namespace "+when, func(t *testing.T) {
			name := "tenant-" + strings.Map(func(r rune) rune {
				if r == ' ' {
					return '-'
				}
				return r
			}, when)
			survivor := two.client()
			if _, err := survivor.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			doomed, answered := make(chan error, 1), make(chan error, 1)
			create := func(client kubernetes.Interface, object string, to chan<- error) {
				_, err := client.CoreV1().ConfigMaps(name).Create(ctx, heldMap(object), metav1.CreateOptions{})
				to <- err
			}
			atOne, atTwo := hook.hold(name+"-one"), hook.hold(name+"-two")
			go create(one.client(), name+"-one", doomed)
			go create(survivor, name+"-two", answered)
			<-atOne.entered
			<-atTwo.entered

			if err := one.client().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			one.kill() // with a request in hand, and a namespace to empty
			if err := <-doomed; err == nil {
				t.Error("the held Create at the killed replica succeeded, want an error")
			}
			if when != "begins to go" {
				two.await("the namespace goes", func(ctx context.Context) error {
					_, err := survivor.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
					if apierrors.IsNotFound(err) {
						return nil
					}
					return fmt.Errorf("it is there: %v", err)
				})
			}
			if when == "is another one" {
				if _, err := survivor.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			close(atOne.release)
			close(atTwo.release)
			err := <-answered
			switch {
			case when == "begins to go" && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !apierrors.IsNotFound(err): // the survivor may have ended it by now
				t.Errorf("Create in a terminating namespace = %v, want NamespaceTerminating or NotFound", err)
			case when != "begins to go" && !apierrors.IsNotFound(err):
				t.Errorf("Create in a deleted namespace = %v, want NotFound", err)
			}
			one.start()
			for _, d := range []*frontDoor{one, two} {
				all, err := d.client().CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{LabelSelector: "held"})
				if err != nil || len(all.Items) > 0 {
					t.Errorf("%d objects of the deleted namespace, %v; want 0", len(all.Items), err)
				}
			}
			stored, err := etcdClient(t, c.endpoints()...).Get(ctx, "/registry/configmaps/"+name+"/"+name, clientv3.WithPrefix())
			if err != nil || stored.Count > 0 {
				t.Errorf("etcd has the objects %v, %v; want none", stored, err)
			}
		})
	}
}
