package quota

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes/scheme"

	"portico.dev/internal/clients"
)

var (
	deviceClaims     = resourcev1.Resource("resourceclaims")
	deviceClaimCount = generic.ObjectCountQuotaResourceNameFor(deviceClaims)
)

const (
	// devicesPerClass is the suffix after the name of a device class: the number of devices of the class in claims.
	devicesPerClass = corev1.ResourceClaimsPerClass
	// implicitPerClass is the prefix for devices that pods request without a claim.
	implicitPerClass = corev1.ResourceImplicitExtendedClaimsPerClass
)

// devices reads data that a claim on devices does not contain.
type devices interface {
	// extendedResources returns the extended resources of device classes, by class.
	extendedResources() (map[string]string, error)
	pod(namespace, name string) (*corev1.Pod, error)
	claims(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// claims counts claims on devices, and the devices that they request. Devices of a class with an extended resource also count
// as that resource. d is nil if only names are needed.
func claims(list lister, d devices, now func() time.Time) *evaluator {
	return &evaluator{
		resource: deviceClaims, charges: chargesWrites, list: list,
		names: func(name corev1.ResourceName) bool { return isDeviceName(name, d) },
		usage: func(obj runtime.Object) (corev1.ResourceList, error) {
			c, ok := obj.(*resourcev1.ResourceClaim)
			if !ok {
				return nil, unexpectedType("ResourceClaim", obj)
			}
			usage := deviceUsage(c)
			if d != nil {
				if err := addExtended(usage, c, d, now); err != nil {
					return nil, err
				}
			}
			return usage, nil
		},
	}
}

func isDeviceName(name corev1.ResourceName, d devices) bool {
	if name == deviceClaimCount || strings.HasSuffix(string(name), devicesPerClass) {
		return true
	}
	rest, requested := strings.CutPrefix(string(name), requestsPrefix)
	if !requested || d == nil {
		return false
	}
	class, implicit := strings.CutPrefix(string(name), implicitPerClass)
	if !implicit && !isExtended(rest) {
		return false
	}
	offered, err := d.extendedResources()
	if err != nil {
		return false // Usage fails too and returns the error
	}
	if implicit {
		return offered[class] != ""
	}
	for _, of := range offered {
		if of == rest {
			return true
		}
	}
	return false
}

// deviceUsage returns the maximum usage of a claim. All alternatives of a request count; per class, the largest one counts.
func deviceUsage(c *resourcev1.ResourceClaim) corev1.ResourceList {
	usage := corev1.ResourceList{deviceClaimCount: one()}
	add := func(name corev1.ResourceName, n int64) {
		sum := usage[name]
		sum.Add(*resource.NewQuantity(n, resource.DecimalSI))
		usage[name] = sum
	}
	for _, request := range c.Spec.Devices.Requests {
		most := map[corev1.ResourceName]int64{}
		for _, sub := range request.FirstAvailable {
			name := corev1.ResourceName(sub.DeviceClassName + devicesPerClass)
			if n := numberOfDevices(sub.AllocationMode, sub.Count); n > most[name] {
				most[name] = n
			}
		}
		for name, n := range most {
			add(name, n)
		}
		if exactly := request.Exactly; exactly != nil && len(request.FirstAvailable) == 0 {
			add(corev1.ResourceName(exactly.DeviceClassName+devicesPerClass), numberOfDevices(exactly.AllocationMode, exactly.Count))
		}
	}
	return usage
}

// numberOfDevices returns the maximum number of devices. It is 0 for modes of a later version.
func numberOfDevices(mode resourcev1.DeviceAllocationMode, n int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return n
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}

// addExtended adds devices as extended resources, without the amount that the pod of the claim is already charged for.
func addExtended(usage corev1.ResourceList, c *resourcev1.ResourceClaim, d devices, now func() time.Time) error {
	offered, err := d.extendedResources()
	if err != nil {
		return err
	}
	extended := corev1.ResourceList{}
	for name, n := range usage {
		class, is := strings.CutSuffix(string(name), devicesPerClass)
		if !is || class == "" {
			continue
		}
		extended[corev1.ResourceName(implicitPerClass+class)] = n
		if offered[class] != "" {
			extended[corev1.ResourceName(requestsPrefix+offered[class])] = n
		}
	}
	if len(extended) == 0 {
		return nil
	}
	ofPod := podOfClaim(c, d, now)
	for name, n := range extended {
		n.Sub(ofPod[name])
		if n.Sign() > 0 {
			usage[name] = n
		}
	}
	return nil
}

// podOfClaim returns the usage of a pod if the scheduler has created the claim for the pod's extended resources. It returns nil
// if the pod does not exist or has another claim.
func podOfClaim(c *resourcev1.ResourceClaim, d devices, now func() time.Time) corev1.ResourceList {
	owner := metav1.GetControllerOfNoCopy(c)
	if !ofExtendedResources(c, owner) {
		return nil
	}
	pod, err := d.pod(c.Namespace, owner.Name)
	if err != nil || pod.UID != owner.UID {
		return nil
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if status.ResourceClaimName != c.Name {
			return nil
		}
		return podUsage(pod, now())
	}
	others, err := d.claims(c.Namespace)
	if err != nil {
		return nil
	}
	for _, other := range others {
		if byOwner := metav1.GetControllerOfNoCopy(other); !ofExtendedResources(other, byOwner) || byOwner.UID != pod.UID {
			continue
		}
		if before := other.CreationTimestamp.Time.Compare(c.CreationTimestamp.Time); before < 0 || before == 0 && other.Name < c.Name {
			return nil // the first claim belongs to the pod
		}
	}
	return podUsage(pod, now())
}

func ofExtendedResources(c *resourcev1.ResourceClaim, owner *metav1.OwnerReference) bool {
	return c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" && owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}

// clusterDevices reads the device classes at most once. It is for a single request or measurement.
type clusterDevices struct {
	ctx    context.Context
	client clients.Interface
	// offered returns the extended resources by class.
	offered func() (map[string]string, error)
}

func newClusterDevices(ctx context.Context, client clients.Interface) *clusterDevices {
	d := &clusterDevices{ctx: ctx, client: client}
	d.offered = sync.OnceValues(func() (map[string]string, error) {
		offered := map[string]string{}
		all, err := pages(func(_ string, o metav1.ListOptions) ([]runtime.Object, string, error) {
			var l resourcev1.DeviceClassList
			err := listDevices(ctx, client, "deviceclasses", "", o, &l)
			return objects(l.Items), l.Continue, err
		})("")
		if err != nil {
			return nil, fmt.Errorf("list device classes: %w", err)
		}
		for _, obj := range all {
			if class := obj.(*resourcev1.DeviceClass); class.Spec.ExtendedResourceName != nil {
				offered[class.Name] = *class.Spec.ExtendedResourceName
			}
		}
		return offered, nil
	})
	return d
}

func (d *clusterDevices) extendedResources() (map[string]string, error) { return d.offered() }

func (d *clusterDevices) pod(namespace, name string) (*corev1.Pod, error) {
	return d.client.CoreV1().Pods(namespace).Get(d.ctx, name, metav1.GetOptions{})
}

func (d *clusterDevices) claims(namespace string) ([]*resourcev1.ResourceClaim, error) {
	all, err := claimLister(d.ctx, d.client)(namespace)
	if err != nil {
		return nil, err
	}
	claims := make([]*resourcev1.ResourceClaim, len(all))
	for i := range all {
		claims[i] = all[i].(*resourcev1.ResourceClaim)
	}
	return claims, nil
}

func claimLister(ctx context.Context, client clients.Interface) lister {
	return pages(func(namespace string, o metav1.ListOptions) ([]runtime.Object, string, error) {
		var l resourcev1.ResourceClaimList
		err := listDevices(ctx, client, deviceClaims.Resource, namespace, o, &l)
		return objects(l.Items), l.Continue, err
	})
}

// listDevices lists resources without a typed client of the group, which no other code needs.
func listDevices(ctx context.Context, client clients.Interface, of, namespace string, o metav1.ListOptions, into runtime.Object) error {
	path := []string{"/apis", resourcev1.GroupName, "v1", of}
	if namespace != "" {
		path = []string{"/apis", resourcev1.GroupName, "v1", "namespaces", namespace, of}
	}
	return client.CoreV1().RESTClient().Get().AbsPath(path...).VersionedParams(&o, scheme.ParameterCodec).Do(ctx).Into(into)
}
