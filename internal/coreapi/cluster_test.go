package coreapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/registry"
)

func certificateRequest(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Username: "somebody-else", Groups: []string{user.SystemPrivilegedGroup},
		},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue},
		}},
	}
}

// A request that names its author itself, or comes with its approval, would be a way to be anybody.
func TestACertificateRequestIsItsAuthors(t *testing.T) {
	h := start(t)
	author := &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{user.SystemPrivilegedGroup, "staff"}, Extra: map[string][]string{"example.com/k": {"v"}}}
	requests := h.typed(t, author).CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(within(t), certificateRequest(t, "a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := made.Spec; s.Username != "jane" || s.UID != "7" || strings.Join(s.Groups, ",") != "system:masters,staff" || s.Extra["example.com/k"][0] != "v" {
		t.Errorf("got %+v", s)
	}
	if len(made.Status.Conditions) > 0 {
		t.Error("it came approved")
	}
	changed := made.DeepCopy()
	changed.Spec.Username, changed.Labels = "mallory", map[string]string{"a": "b"}
	if changed, err = requests.Update(within(t), changed, metav1.UpdateOptions{}); err != nil || changed.Spec.Username != "jane" || changed.Labels["a"] != "b" {
		t.Fatalf("got %+v, %v", changed, err)
	}

	approved := changed.DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "R"}}
	if got, err := requests.Update(within(t), approved, metav1.UpdateOptions{}); err != nil || len(got.Status.Conditions) > 0 {
		t.Fatalf("approved by an update: %+v, %v", got.Status, err)
	}
	if _, err := requests.UpdateStatus(within(t), approved, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("approved by the status: %v", err)
	}
	approved.Status.Certificate = []byte("x")
	got, err := requests.UpdateApproval(within(t), "a", approved, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Status.Conditions[0]; len(got.Status.Certificate) > 0 || c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() {
		t.Errorf("got %+v", got.Status)
	}
	list, err := requests.List(within(t), metav1.ListOptions{FieldSelector: "spec.signerName=example.com/signer"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("by signer: %v, %v", list, err)
	}
}

// Who may write the status of one request may not write that of every signer's.
func TestSigningForAPodNeedsTheRightToSign(t *testing.T) {
	h := start(t, func(c *Config) { c.Authorizer = onlySigners{} })
	namespace(t, h.typed(t, admin), "ns")
	block, _ := pem.Decode(certificateRequest(t, "a").Spec.Request)
	requests := h.typed(t, admin).CertificatesV1().PodCertificateRequests("ns")
	made, err := requests.Create(within(t), &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2", NodeName: "n", NodeUID: "3",
			StubPKCS10Request: block.Bytes,
		},
		Status: certificatesv1.PodCertificateRequestStatus{CertificateChain: "its own"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *made.Spec.MaxExpirationSeconds != 86400 || made.Status.CertificateChain != "" {
		t.Errorf("got %+v", made)
	}
	made.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Now()}}
	for _, name := range []string{"mallory", "signer"} { // in this order: who succeeds makes a new version
		may := name == "signer"
		all := h.typed(t, &user.DefaultInfo{Name: name}).CertificatesV1().PodCertificateRequests("ns")
		if _, err := all.UpdateStatus(within(t), made, metav1.UpdateOptions{}); (err == nil) != may {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && !strings.Contains(err.Error(), `spec.signerName: Forbidden: User "mallory" is not permitted to "sign" for signer "example.com/signer"`) {
			t.Error(err)
		}
	}
}

// onlySigners lets the user "signer" sign.
type onlySigners struct{ people }

func (onlySigners) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "signers" && a.GetVerb() == "sign" && a.GetName() == "example.com/signer" && a.GetUser().GetName() == "signer" {
		return authorizer.DecisionAllow, "", nil
	}
	return people{}.Authorize(ctx, a)
}

func TestTheSystemsPriorityClassesStay(t *testing.T) {
	h := start(t)
	classes := h.typed(t, admin).SchedulingV1().PriorityClasses()
	for _, class := range []*schedulingv1.PriorityClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000}, {ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10},
	} {
		made, err := classes.Create(within(t), class, metav1.CreateOptions{})
		if err != nil || made.Generation != 1 || *made.PreemptionPolicy != corev1.PreemptLowerPriority {
			t.Fatalf("got %+v, %v", made, err)
		}
	}
	if err := classes.Delete(within(t), "system-node-critical", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleted: %v", err)
	}
	if err := classes.DeleteCollection(within(t), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleted with all: %v", err)
	}
	if err := classes.Delete(within(t), "high", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := classes.Get(within(t), "system-node-critical", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestVolumesBeginUnlookedAt(t *testing.T) {
	h := start(t)
	client := h.typed(t, admin)
	namespace(t, client, "ns")
	volume, err := client.CoreV1().PersistentVolumes().Create(within(t), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": apiresource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}, metav1.CreateOptions{})
	if err != nil || volume.Status.Phase != corev1.VolumePending || volume.Status.LastPhaseTransitionTime == nil {
		t.Fatalf("got %+v, %v", volume, err)
	}
	long := metav1.Unix(1000, 0)
	volume.Status.Phase, volume.Status.LastPhaseTransitionTime = corev1.VolumeAvailable, &long
	if volume, err = client.CoreV1().PersistentVolumes().UpdateStatus(within(t), volume, metav1.UpdateOptions{}); err != nil || !volume.Status.LastPhaseTransitionTime.Equal(&long) {
		t.Fatalf("the controller's own time: %+v, %v", volume.Status, err)
	}
	volume.Status.Phase = corev1.VolumeReleased
	if volume, err = client.CoreV1().PersistentVolumes().UpdateStatus(within(t), volume, metav1.UpdateOptions{}); err != nil || volume.Status.LastPhaseTransitionTime.Equal(&long) {
		t.Errorf("a new phase of an old time: %+v, %v", volume.Status, err)
	}

	claim := func(name string, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
		made, err := client.CoreV1().PersistentVolumeClaims("ns").Create(within(t), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, DataSource: source,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": apiresource.MustParse("1Gi")}},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}, metav1.CreateOptions{})
		if err != nil || made.Status.Phase != corev1.ClaimPending {
			t.Fatalf("got %+v, %v", made, err)
		}
		return made
	}
	if made := claim("copy", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}); made.Spec.DataSourceRef == nil || made.Spec.DataSourceRef.Name != "other" {
		t.Errorf("got %+v", made.Spec)
	}
	if made := claim("unknown", &corev1.TypedLocalObjectReference{APIGroup: ptr.To("example.com"), Kind: "Thing", Name: "t"}); made.Spec.DataSource != nil {
		t.Errorf("got %+v", made.Spec)
	}
}

func TestAlphaHealthOfStorageIsNotKept(t *testing.T) {
	h := start(t)
	nodes := h.typed(t, admin).StorageV1().CSINodes()
	node, err := nodes.Create(within(t), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.StorageHealth = []storagev1.StorageHealth{{Name: "csi.example.com"}}
	if node, err = nodes.UpdateStatus(within(t), node, metav1.UpdateOptions{}); err != nil || node.Status.StorageHealth != nil {
		t.Errorf("got %+v, %v", node.Status, err)
	}
}

func TestRuntimeClassesAreMadeByPut(t *testing.T) {
	h := start(t)
	classes := h.typed(t, admin).NodeV1().RuntimeClasses()
	if _, err := classes.Update(within(t), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "runsc"}, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	_, err := classes.Update(within(t), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "runsc"}, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("replaced blindly: %v", err)
	}
}

func TestComponentStatusesSayHowEtcdIs(t *testing.T) {
	h := start(t)
	list, err := h.typed(t, admin).CoreV1().ComponentStatuses().List(within(t), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "etcd-0" || list.Items[0].Conditions[0].Message != "ok" {
		t.Errorf("got %+v, %v", list, err)
	}
	if _, err := h.typed(t, admin).CoreV1().ComponentStatuses().Get(within(t), "scheduler", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	virtual := core.Group().Virtual
	at := slices.IndexFunc(virtual, func(v registry.Virtual) bool { return v.Name == "componentstatuses" })
	ill := virtual[at].Storage(&registry.Environment{CheckStore: func(context.Context) error { return errors.New("no leader") }})
	obj, err := ill.(rest.Getter).Get(t.Context(), "etcd-0", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := obj.(*corev1.ComponentStatus).Conditions[0]; c.Status != corev1.ConditionFalse || c.Error != "no leader" {
		t.Errorf("got %+v", c)
	}
}
