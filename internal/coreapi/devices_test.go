package coreapi

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

// claimRights maps a user to the verb, subresource, namespace and name of the claims on devices that the user may access.
type claimRights map[string][]string

func (r claimRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := strings.Join([]string{a.GetVerb(), a.GetResource() + "/" + a.GetSubresource(), a.GetNamespace(), a.GetName()}, " ")
	if slices.Contains(r[a.GetUser().GetName()], asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "nobody said so", nil
}

func (r claimRights) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

func (claimRights) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func claimFor(name string, request resourcev1.ExactDeviceRequest) *resourcev1.ResourceClaim {
	request.DeviceClassName = "gpus"
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &request}}},
	}}
}

// The scheduler allocates and drivers report on their devices. Neither may do the other's writes.
func TestClaimStatusFieldsAreLimitedToTheirWriters(t *testing.T) {
	h := start(t, func(c *Config) {
		c.Authorizer = claimRights{
			"scheduler":                      {"update resourceclaims/binding  "},
			"controller":                     {"patch resourceclaims/binding  ", "update resourceclaims/binding work "},
			"driver":                         {"arbitrary-node:update resourceclaims/driver work d.example.com"},
			"system:serviceaccount:work:pod": {"associated-node:update resourceclaims/driver work d.example.com"},
		}
	})
	root := h.typed(t, admin)
	namespace(t, root, "work")
	ctx := within(t)
	claim, err := root.ResourceV1().ResourceClaims("work").Create(ctx, claimFor("a", resourcev1.ExactDeviceRequest{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(nodes ...string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:work:pod", Extra: map[string][]string{serviceaccount.NodeNameKey: nodes}}
	}
	named := func(name string) user.Info { return &user.DefaultInfo{Name: name} }
	allocate := func(s *resourcev1.ResourceClaimStatus) {
		s.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "one", Driver: "d.example.com", Pool: "p", Device: "x"}, {Request: "one", Driver: "e.example.com", Pool: "p", Device: "y"},
			}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}},
			}}}},
		}
	}
	reserve := func(s *resourcev1.ResourceClaimStatus) {
		s.ReservedFor = append(s.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: "u"})
	}
	report := func(driver, device string) func(*resourcev1.ResourceClaimStatus) {
		return func(s *resourcev1.ResourceClaimStatus) {
			s.Devices = append(s.Devices, resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "p", Device: device,
				NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: "eth0"}})
		}
	}
	forget := func(s *resourcev1.ResourceClaimStatus) { s.Devices = nil }
	const (
		binds   = `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: `
		reports = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: `
	)
	for _, c := range []struct {
		situation string
		who       user.Info
		change    func(*resourcev1.ResourceClaimStatus)
		refused   string
	}{
		{"somebody allocates", named("driver"), allocate, binds + `resourceclaims.resource.k8s.io is forbidden: User "driver" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope: nobody said so`},
		{"a right in one namespace is none", named("controller"), allocate, binds},
		{"the scheduler allocates", named("scheduler"), allocate, ""},
		{"somebody reserves", named("driver"), reserve, binds},
		{"the scheduler reserves", named("scheduler"), reserve, ""},
		{"the scheduler reports", named("scheduler"), report("d.example.com", "x"), reports + `resourceclaims.resource.k8s.io "d.example.com" is forbidden: User "scheduler" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "work": nobody said so`},
		{"a driver of another", named("driver"), report("e.example.com", "y"), reports},
		{"the driver", named("driver"), report("d.example.com", "x"), ""},
		{"a change of nothing", named("nobody"), func(*resourcev1.ResourceClaimStatus) {}, ""},
		{"somebody takes a report back", named("nobody"), forget, reports},
		{"a pod on another node", pod("n2"), forget, reports},
		{"a pod on two nodes", pod("n1", "n2"), forget, reports},
		{"a pod on the node", pod("n1"), forget, ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			next := claim.DeepCopy()
			c.change(&next.Status)
			got, err := h.typed(t, c.who).ResourceV1().ResourceClaims("work").UpdateStatus(ctx, next, metav1.UpdateOptions{})
			if c.refused != "" {
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("status update of the claim: error = %v, want Invalid that contains %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			claim = got
		})
	}
}

// Access to devices in use by other claims requires a namespace with the label of an administrator.
func TestAdminAccessNeedsLabeledNamespace(t *testing.T) {
	h := start(t)
	root := h.typed(t, admin)
	namespace(t, root, "work")
	ctx := within(t)
	const refusal = "adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	request := resourcev1.ExactDeviceRequest{AdminAccess: ptr.To(true)}
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claimFor("a", request).Spec}}
	create := func() (claim, ofTemplate error) {
		_, claim = root.ResourceV1().ResourceClaims("work").Create(ctx, claimFor("a", request), metav1.CreateOptions{})
		_, ofTemplate = root.ResourceV1().ResourceClaimTemplates("work").Create(ctx, template, metav1.CreateOptions{})
		return claim, ofTemplate
	}
	for _, err := range func() []error { a, b := create(); return []error{a, b} }() {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.devices.requests[0]."+refusal) {
			t.Errorf("create with adminAccess in a namespace without the label: error = %v, want Invalid that contains %q", err, refusal)
		}
	}
	plain, err := root.ResourceV1().ResourceClaims("work").Create(ctx, claimFor("plain", resourcev1.ExactDeviceRequest{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	plain.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "one", Driver: "d.example.com", Pool: "p", Device: "x", AdminAccess: ptr.To(true)},
	}}}
	if _, err := root.ResourceV1().ResourceClaims("work").UpdateStatus(ctx, plain, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "status.allocation.devices.results[0]."+refusal) {
		t.Errorf("allocation with adminAccess in a namespace without the label: error = %v, want Invalid that contains %q", err, refusal)
	}
	ns, err := root.CoreV1().Namespaces().Get(ctx, "work", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] = "true"
	if _, err := root.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if claim, ofTemplate := create(); claim != nil || ofTemplate != nil {
		t.Errorf("create of a claim and of a template in a namespace with the label: %v, %v, want no error", claim, ofTemplate)
	}
	if _, err := root.ResourceV1().ResourceClaims("work").UpdateStatus(ctx, plain, metav1.UpdateOptions{}); err != nil {
		t.Errorf("allocation in a namespace with the label failed: %v, want no error", err)
	}
}

func TestSlicesAreSelectableByNodeDriverAndPool(t *testing.T) {
	h := start(t)
	slices := h.typed(t, admin).ResourceV1().ResourceSlices()
	ctx := within(t)
	for name, node := range map[string]string{"a": "n1", "b": "n2"} {
		if _, err := slices.Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "d.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]int{
		"spec.nodeName=n1": 1, "spec.nodeName=n3": 0, "spec.driver=d.example.com": 2, "spec.driver=d.example.com,spec.pool.name=n2": 1, "metadata.name=b": 1,
	} {
		list, err := slices.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("list by %s: %d slices, %v, want %d", selector, len(list.Items), err, want)
		}
	}
	_, err := slices.List(ctx, metav1.ListOptions{FieldSelector: "spec.pool.generation=1"})
	if err == nil || !strings.Contains(err.Error(), "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool.generation") {
		t.Errorf("list by spec.pool.generation: error = %v, want an error that the field label is not supported", err)
	}
}

// A quota counts claims. For each class it also counts the most devices that the claims may get, including requests under
// the name of the extended resource.
func TestDeviceQuotaCountsClaimsAndDevices(t *testing.T) {
	h := start(t, withQuota)
	client := h.typed(t, admin)
	namespace(t, client, "default")
	ctx := within(t)
	if _, err := client.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	enforced(t, "q", limits("count/resourceclaims.resource.k8s.io", "3", "gpus.deviceclass.resource.k8s.io/devices", "4", "requests.example.com/gpu", "3", "secrets", "0"), client)
	for _, c := range []struct {
		name    string
		request resourcev1.ExactDeviceRequest
		refused string
	}{
		{"all", resourcev1.ExactDeviceRequest{AllocationMode: resourcev1.DeviceAllocationModeAll}, "requested: gpus.deviceclass.resource.k8s.io/devices=32"},
		{"two", resourcev1.ExactDeviceRequest{Count: 2}, ""},
		{"more", resourcev1.ExactDeviceRequest{Count: 2}, "requested: requests.example.com/gpu=2, used: requests.example.com/gpu=2, limited: requests.example.com/gpu=3"},
		{"one", resourcev1.ExactDeviceRequest{}, ""},
	} {
		_, err := client.ResourceV1().ResourceClaims("default").Create(ctx, claimFor(c.name, c.request), metav1.CreateOptions{})
		if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("create of the claim %s: error = %v, want an error that contains %q (empty: no error)", c.name, err, c.refused)
		}
	}
	q, err := client.CoreV1().ResourceQuotas("default").Get(ctx, "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]int64{"count/resourceclaims.resource.k8s.io": 2, "gpus.deviceclass.resource.k8s.io/devices": 3, "requests.example.com/gpu": 3} {
		if used := q.Status.Used[name]; used.Value() != want {
			t.Errorf("status.used = %s for %s, want %d", used.String(), name, want)
		}
	}
}
