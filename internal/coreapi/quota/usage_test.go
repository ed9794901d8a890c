package quota

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		container("a", list("cpu", "100m", "memory", "64Mi"), list("cpu", "1", "memory", "128Mi")),
		container("b", list("cpu", "200m"), nil),
	}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestUsageOfObjectsIsCounted(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ran := list("count/pods", "1", "pods", "1", "cpu", "300m", "requests.cpu", "300m", "memory", "64Mi", "requests.memory", "64Mi",
		"limits.cpu", "1", "limits.memory", "128Mi")
	gone := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			at, grace := metav1.NewTime(now.Add(-ago)), int64(30)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
		}
	}
	claim := func(size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: list("storage", size)},
		}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	class := func(c *corev1.PersistentVolumeClaim) { gold := "gold"; c.Spec.StorageClassName = &gold }
	svc := func(kind corev1.ServiceType, change ...func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{NodePort: 30001}, {}}}}
		for _, f := range change {
			f(&s.Spec)
		}
		return s
	}
	none := func(s *corev1.ServiceSpec) { no := false; s.AllocateLoadBalancerNodePorts = &no }
	services := func(ports, balancers string) corev1.ResourceList {
		return list("count/services", "1", "services", "1", "services.nodeports", ports, "services.loadbalancers", balancers)
	}
	for name, c := range map[string]struct {
		obj  runtime.Object
		kind string
		want corev1.ResourceList
	}{
		"a pod":                     {pod(), "pods", ran},
		"a pod that has ended":      {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "pods", list("count/pods", "1")},
		"a pod on its way out":      {pod(gone(10 * time.Second)), "pods", ran},
		"a pod that should be gone": {pod(gone(31 * time.Second)), "pods", list("count/pods", "1")},
		"huge pages and a device": {pod(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{container("a", list("hugepages-2Mi", "4Mi", "example.com/gpu", "2"), nil)}
		}), "pods", list("count/pods", "1", "pods", "1", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "requests.example.com/gpu", "2")},
		"the larger of init and run": {pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("i", list("cpu", "2"), nil)}
			p.Spec.Containers = p.Spec.Containers[1:]
		}), "pods", list("count/pods", "1", "pods", "1", "cpu", "2", "requests.cpu", "2")},
		"a service":               {svc(corev1.ServiceTypeClusterIP), "services", services("0", "0")},
		"a node port":             {svc(corev1.ServiceTypeNodePort), "services", services("2", "0")},
		"a load balancer":         {svc(corev1.ServiceTypeLoadBalancer), "services", services("2", "1")},
		"one that wants no ports": {svc(corev1.ServiceTypeLoadBalancer, none), "services", services("1", "1")},
		"a volume claim":          {claim("5Gi"), "persistentvolumeclaims", list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "5Gi")},
		"parts of bytes":          {claim("100m"), "persistentvolumeclaims", list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "1")},
		"a volume claim of a class": {claim("5Gi", class), "persistentvolumeclaims", list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "5Gi",
			"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "5Gi")},
		"one that shrinks again": {claim("5Gi", func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResources = list("storage", "8Gi") }), "persistentvolumeclaims",
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "8Gi")},
		"a config map": {&corev1.ConfigMap{}, "configmaps", list("count/configmaps", "1", "configmaps", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := evaluatorFor(corev1.Resource(c.kind), nil, nil, func() time.Time { return now }).Usage(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			if !quota.Equals(got, c.want) {
				t.Errorf("usage = %v\nwant %v", got, c.want)
			}
			for resource := range got { // a quota can name every counted resource
				kinds := Kinds(resource)
				if resource == "requests.example.com/gpu" { // a claim on devices may also match
					kinds = slices.DeleteFunc(kinds, func(r schema.GroupResource) bool { return r == deviceClaims })
				}
				if len(kinds) != 1 || kinds[0] != corev1.Resource(c.kind) {
					t.Errorf("Kinds(%s) = %v, want %s", resource, kinds, c.kind)
				}
			}
		})
	}
	if got, err := evaluatorFor(schema.GroupResource{Group: "example.com", Resource: "widgets"}, nil, nil, nil).Usage(&metav1.PartialObjectMetadata{}); err != nil || !quota.Equals(got, list("count/widgets.example.com", "1")) {
		t.Errorf("usage of a custom resource = %v, %v, want count/widgets.example.com=1", got, err)
	}
}

func TestPodsMatchQuotaScopes(t *testing.T) {
	seconds := int64(60)
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
	bestEffort := func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{container("a", nil, nil)} }
	high := func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }
	nosy := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}},
		}}}}
	}
	scope := func(name corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists}
	}
	class := func(op corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values}
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		scope corev1.ScopedResourceSelectorRequirement
		in    bool
	}{
		"a deadline is terminating":        {pod(deadline), scope(corev1.ResourceQuotaScopeTerminating), true},
		"a deadline is not NotTerminating": {pod(deadline), scope(corev1.ResourceQuotaScopeNotTerminating), false},
		"none is NotTerminating":           {pod(), scope(corev1.ResourceQuotaScopeNotTerminating), true},
		"asks for nothing":                 {pod(bestEffort), scope(corev1.ResourceQuotaScopeBestEffort), true},
		"asks for something":               {pod(), scope(corev1.ResourceQuotaScopeBestEffort), false},
		"asks, so not best effort":         {pod(), scope(corev1.ResourceQuotaScopeNotBestEffort), true},
		"no class":                         {pod(), scope(corev1.ResourceQuotaScopePriorityClass), false},
		"some class":                       {pod(high), scope(corev1.ResourceQuotaScopePriorityClass), true},
		"one of the classes":               {pod(high), class(corev1.ScopeSelectorOpIn, "low", "high"), true},
		"none of the classes":              {pod(high), class(corev1.ScopeSelectorOpNotIn, "low", "high"), false},
		"no class is not in a list":        {pod(), class(corev1.ScopeSelectorOpNotIn, "low"), true},
		"no class does not exist":          {pod(), class(corev1.ScopeSelectorOpDoesNotExist), true},
		"looks elsewhere":                  {pod(nosy), scope(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), true},
		"looks nowhere":                    {pod(), scope(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), false},
	} {
		t.Run(name, func(t *testing.T) {
			if in, err := podInScope(c.scope, c.pod); err != nil || in != c.in {
				t.Errorf("podInScope = %v, %v, want %v", in, err, c.in)
			}
		})
	}
}

func TestContainersWithoutRequiredResourcesAreNamed(t *testing.T) {
	required := []corev1.ResourceName{"limits.cpu", "requests.memory", "pods", "requests.example.com/gpu"}
	err := podRequires(required, pod())
	if err == nil || err.Error() != "must specify limits.cpu for: b; requests.memory for: b" {
		t.Error(err)
	}
	whole := pod(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1")} })
	if err := podRequires(required, whole); err != nil {
		t.Errorf("podRequires of a pod with pod-level resources failed: %v, want no error", err)
	}
}

func TestUnknownQuotaNamesMatchNoKind(t *testing.T) {
	for _, name := range []string{"whatever", "count/", "count/events", "count/events.events.k8s.io", "requests.kubernetes.io/x", "limits.example.com/gpu"} {
		if kinds := Kinds(corev1.ResourceName(name)); len(kinds) > 0 {
			t.Errorf("Kinds(%s) = %v, want none", name, kinds)
		}
	}
	if got := Kinds("count/deployments.apps"); len(got) != 1 || !strings.Contains(got[0].String(), "deployments.apps") {
		t.Errorf("Kinds(count/deployments.apps) = %v, want deployments.apps", got)
	}
}

// cluster contains the objects that the evaluator of claims reads.
type cluster struct {
	offered map[string]string
	pods    []*corev1.Pod
	made    []*resourcev1.ResourceClaim
}

func (c cluster) extendedResources() (map[string]string, error) { return c.offered, nil }
func (c cluster) claims(string) ([]*resourcev1.ResourceClaim, error) {
	return c.made, nil
}

func (c cluster) pod(_, name string) (*corev1.Pod, error) {
	for _, p := range c.pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, errors.New("there is no such pod")
}

func TestUsageOfDeviceClaimsIsCounted(t *testing.T) {
	exactly := func(name, class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}}
	}
	sub := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{DeviceClassName: class, AllocationMode: mode, Count: n}
	}
	claim := func(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
	}
	const some, all = resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll
	const counted, a, b = "count/resourceclaims.resource.k8s.io", "a.deviceclass.resource.k8s.io/devices", "b.deviceclass.resource.k8s.io/devices"
	const implicitA, extended = "requests.deviceclass.resource.kubernetes.io/a", "requests.example.com/gpu"
	owner := pod(func(p *corev1.Pod) {
		p.UID, p.Spec.Containers = "u", []corev1.Container{container("c", list("example.com/gpu", "2"), nil)}
	})
	ofPod := func(name string) *resourcev1.ResourceClaim {
		c := claim(exactly("x", "a", some, 3))
		c.Name, c.Annotations = name, map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: ptr.To(true)}}
		return c
	}
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		in    devices
		want  corev1.ResourceList
	}{
		"nothing":                   {claim(), nil, list(counted, "1")},
		"two requests of a class":   {claim(exactly("x", "a", some, 2), exactly("y", "a", some, 1)), nil, list(counted, "1", a, "3")},
		"all devices":               {claim(exactly("x", "a", all, 0)), nil, list(counted, "1", a, "32")},
		"a mode of a later version": {claim(exactly("x", "a", "Some", 5)), nil, list(counted, "1", a, "0")},
		"alternatives count with the largest": {claim(resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{sub("a", some, 1), sub("b", some, 2), sub("a", some, 4)}}), nil,
			list(counted, "1", a, "4", b, "2")},
		"an extended resource": {claim(exactly("x", "a", some, 3)), cluster{offered: map[string]string{"a": "example.com/gpu"}},
			list(counted, "1", a, "3", implicitA, "3", extended, "3")},
		"of a pod that is charged for two": {ofPod("c"), cluster{offered: map[string]string{"a": "example.com/gpu"}, pods: []*corev1.Pod{owner}},
			list(counted, "1", a, "3", implicitA, "3", extended, "1")},
		"a second one of the pod": {ofPod("c"), cluster{offered: map[string]string{"a": "example.com/gpu"}, pods: []*corev1.Pod{owner}, made: []*resourcev1.ResourceClaim{ofPod("b")}},
			list(counted, "1", a, "3", implicitA, "3", extended, "3")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := evaluatorFor(deviceClaims, nil, c.in, time.Now).Usage(c.claim)
			if err != nil || !quota.Equals(got, c.want) {
				t.Errorf("usage of the claim = %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestDeviceQuotaNamesMatchTheirKinds(t *testing.T) {
	in := cluster{offered: map[string]string{"a": "example.com/gpu"}}
	e := evaluatorFor(deviceClaims, nil, in, time.Now)
	names := []corev1.ResourceName{"count/resourceclaims.resource.k8s.io", "b.deviceclass.resource.k8s.io/devices", "requests.deviceclass.resource.kubernetes.io/a", "requests.example.com/gpu"}
	others := []corev1.ResourceName{"requests.deviceclass.resource.kubernetes.io/b", "requests.example.com/tpu", "pods", "requests.cpu"}
	if got := e.MatchingResources(append(others, names...)); !slices.Equal(got, names) {
		t.Errorf("MatchingResources = %v, want %v", got, names)
	}
	if got := Kinds("requests.example.com/gpu"); !slices.Equal(got, []schema.GroupResource{corev1.Resource("pods"), deviceClaims}) {
		t.Errorf("Kinds of an extended resource = %v, want pods and claims", got)
	}
	if got := Kinds("b.deviceclass.resource.k8s.io/devices"); !slices.Equal(got, []schema.GroupResource{deviceClaims}) {
		t.Errorf("Kinds of the devices of a class = %v, want claims", got)
	}
}
