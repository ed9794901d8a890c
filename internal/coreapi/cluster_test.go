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

// A client could impersonate any user with a request that sets its own username or its own approval.
func TestCertificateRequestIdentityIsTheAuthors(t *testing.T) {
	h := start(t)
	author := &user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{user.SystemPrivilegedGroup, "staff"}, Extra: map[string][]string{"example.com/k": {"v"}}}
	requests := h.typed(t, author).CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(within(t), certificateRequest(t, "a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := made.Spec; s.Username != "jane" || s.UID != "7" || strings.Join(s.Groups, ",") != "system:masters,staff" || s.Extra["example.com/k"][0] != "v" {
		t.Errorf("spec of the created request = %+v, want the user jane with UID 7, groups system:masters and staff, and the extra example.com/k", s)
	}
	if len(made.Status.Conditions) > 0 {
		t.Errorf("conditions of the created request = %v, want none", made.Status.Conditions)
	}
	changed := made.DeepCopy()
	changed.Spec.Username, changed.Labels = "mallory", map[string]string{"a": "b"}
	if changed, err = requests.Update(within(t), changed, metav1.UpdateOptions{}); err != nil || changed.Spec.Username != "jane" || changed.Labels["a"] != "b" {
		t.Fatalf("update of the username and a label = %+v, %v, want the username jane and the label a=b", changed, err)
	}

	approved := changed.DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "R"}}
	if got, err := requests.Update(within(t), approved, metav1.UpdateOptions{}); err != nil || len(got.Status.Conditions) > 0 {
		t.Fatalf("update with an approval: status = %+v, error = %v, want no condition", got.Status, err)
	}
	if _, err := requests.UpdateStatus(within(t), approved, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("status update with an approval: error = %v, want Invalid", err)
	}
	approved.Status.Certificate = []byte("x")
	got, err := requests.UpdateApproval(within(t), "a", approved, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Status.Conditions[0]; len(got.Status.Certificate) > 0 || c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() {
		t.Errorf("status after the approval = %+v, want no certificate and both times set", got.Status)
	}
	list, err := requests.List(within(t), metav1.ListOptions{FieldSelector: "spec.signerName=example.com/signer"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("list by spec.signerName = %v, %v, want one request", list, err)
	}
}

// The right to write the status of one signer's requests does not include the requests of every signer.
func TestPodCertificateStatusNeedsTheSignerRight(t *testing.T) {
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
		t.Errorf("created request = %+v, want maxExpirationSeconds 86400 and no certificate chain", made)
	}
	made.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Now()}}
	for _, name := range []string{"mallory", "signer"} { // in this order: a successful update changes the version
		may := name == "signer"
		all := h.typed(t, &user.DefaultInfo{Name: name}).CertificatesV1().PodCertificateRequests("ns")
		if _, err := all.UpdateStatus(within(t), made, metav1.UpdateOptions{}); (err == nil) != may {
			t.Errorf("status update by %s: error = %v, want success %v", name, err, may)
		} else if err != nil && !strings.Contains(err.Error(), `spec.signerName: Forbidden: User "mallory" is not permitted to "sign" for signer "example.com/signer"`) {
			t.Error(err)
		}
	}
}

// onlySigners allows the user "signer" to sign.
type onlySigners struct{ people }

func (onlySigners) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "signers" && a.GetVerb() == "sign" && a.GetName() == "example.com/signer" && a.GetUser().GetName() == "signer" {
		return authorizer.DecisionAllow, "", nil
	}
	return people{}.Authorize(ctx, a)
}

func TestSystemPriorityClassesCannotBeDeleted(t *testing.T) {
	h := start(t)
	classes := h.typed(t, admin).SchedulingV1().PriorityClasses()
	for _, class := range []*schedulingv1.PriorityClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000}, {ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10},
	} {
		made, err := classes.Create(within(t), class, metav1.CreateOptions{})
		if err != nil || made.Generation != 1 || *made.PreemptionPolicy != corev1.PreemptLowerPriority {
			t.Fatalf("create of a priority class = %+v, %v, want generation 1 and PreemptLowerPriority", made, err)
		}
	}
	if err := classes.Delete(within(t), "system-node-critical", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete of system-node-critical: error = %v, want Forbidden", err)
	}
	if err := classes.DeleteCollection(within(t), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deletecollection with system-node-critical: error = %v, want Forbidden", err)
	}
	if err := classes.Delete(within(t), "high", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := classes.Get(within(t), "system-node-critical", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestNewVolumesStartPending(t *testing.T) {
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
		t.Fatalf("create of a volume = %+v, %v, want the phase Pending and a transition time", volume, err)
	}
	long := metav1.Unix(1000, 0)
	volume.Status.Phase, volume.Status.LastPhaseTransitionTime = corev1.VolumeAvailable, &long
	if volume, err = client.CoreV1().PersistentVolumes().UpdateStatus(within(t), volume, metav1.UpdateOptions{}); err != nil || !volume.Status.LastPhaseTransitionTime.Equal(&long) {
		t.Fatalf("status update with a phase and a time = %+v, %v, want the time %v", volume.Status, err, &long)
	}
	volume.Status.Phase = corev1.VolumeReleased
	if volume, err = client.CoreV1().PersistentVolumes().UpdateStatus(within(t), volume, metav1.UpdateOptions{}); err != nil || volume.Status.LastPhaseTransitionTime.Equal(&long) {
		t.Errorf("status update with a new phase and the old time = %+v, %v, want a new time", volume.Status, err)
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
			t.Fatalf("create of a claim = %+v, %v, want the phase Pending", made, err)
		}
		return made
	}
	if made := claim("copy", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}); made.Spec.DataSourceRef == nil || made.Spec.DataSourceRef.Name != "other" {
		t.Errorf("spec of a claim with a dataSource = %+v, want a dataSourceRef to other", made.Spec)
	}
	if made := claim("unknown", &corev1.TypedLocalObjectReference{APIGroup: ptr.To("example.com"), Kind: "Thing", Name: "t"}); made.Spec.DataSource != nil {
		t.Errorf("spec of a claim with an unknown dataSource = %+v, want no dataSource", made.Spec)
	}
}

func TestAlphaStorageHealthIsDropped(t *testing.T) {
	h := start(t)
	nodes := h.typed(t, admin).StorageV1().CSINodes()
	node, err := nodes.Create(within(t), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.StorageHealth = []storagev1.StorageHealth{{Name: "csi.example.com"}}
	if node, err = nodes.UpdateStatus(within(t), node, metav1.UpdateOptions{}); err != nil || node.Status.StorageHealth != nil {
		t.Errorf("status update with storageHealth = %+v, %v, want no storageHealth", node.Status, err)
	}
}

func TestPutCreatesRuntimeClass(t *testing.T) {
	h := start(t)
	classes := h.typed(t, admin).NodeV1().RuntimeClasses()
	if _, err := classes.Update(within(t), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "runsc"}, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	_, err := classes.Update(within(t), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Handler: "runsc"}, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("second PUT without a resourceVersion: error = %v, want Invalid", err)
	}
}

func TestComponentStatusesReportEtcdHealth(t *testing.T) {
	h := start(t)
	list, err := h.typed(t, admin).CoreV1().ComponentStatuses().List(within(t), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "etcd-0" || list.Items[0].Conditions[0].Message != "ok" {
		t.Errorf("list of component statuses = %+v, %v, want etcd-0 with the message ok", list, err)
	}
	if _, err := h.typed(t, admin).CoreV1().ComponentStatuses().Get(within(t), "scheduler", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("GET of the component status scheduler: error = %v, want NotFound", err)
	}
	virtual := core.Group().Virtual
	at := slices.IndexFunc(virtual, func(v registry.Virtual) bool { return v.Name == "componentstatuses" })
	ill := virtual[at].Storage(&registry.Environment{CheckStore: func(context.Context) error { return errors.New("no leader") }})
	obj, err := ill.(rest.Getter).Get(t.Context(), "etcd-0", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := obj.(*corev1.ComponentStatus).Conditions[0]; c.Status != corev1.ConditionFalse || c.Error != "no leader" {
		t.Errorf("condition of etcd without a leader = %+v, want the status False and the error \"no leader\"", c)
	}
}
