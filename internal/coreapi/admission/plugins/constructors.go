package plugins

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	library "k8s.io/apiserver/pkg/admission"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/quota"
)

// Constructors request an informer only if its resource is served here: an informer of any other resource never syncs.

func newLimitRanger(d admission.Deps) library.Interface {
	p := limitRanger{}
	if d.Served(corev1.SchemeGroupVersion.WithResource("limitranges")) {
		p.Limits = d.Informers.LimitRanges().Lister()
		p.List = func(ctx context.Context, namespace string) ([]corev1.LimitRange, error) {
			list, err := d.Client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return list.Items, nil
		}
	}
	return p
}

func newServiceAccount(d admission.Deps) library.Interface {
	return serviceAccount{
		Accounts: d.Informers.ServiceAccounts().Lister(),
		Get: func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
			return d.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		},
	}
}

func newPodPriority(d admission.Deps) library.Interface {
	p := podPriority{}
	if d.Served(schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")) {
		p.Classes = d.Informers.PriorityClasses().Lister()
		p.Get = func(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
			return d.Client.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
		}
	}
	return p
}

func newRuntimeClass(d admission.Deps) library.Interface {
	p := runtimeClass{}
	if d.Served(nodev1.SchemeGroupVersion.WithResource("runtimeclasses")) {
		p.Classes = d.Informers.RuntimeClasses().Lister()
		p.Get = func(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
			return d.Client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
		}
	}
	return p
}

func newDefaultStorageClass(d admission.Deps) library.Interface {
	p := defaultStorageClass{}
	if d.Served(storagev1.SchemeGroupVersion.WithResource("storageclasses")) {
		p.Classes = d.Informers.StorageClasses().Lister()
	}
	return p
}

func newPersistentVolumeClaimResize(d admission.Deps) library.Interface {
	p := persistentVolumeClaimResize{}
	if d.Served(storagev1.SchemeGroupVersion.WithResource("storageclasses")) {
		p.Classes = d.Informers.StorageClasses().Lister()
	}
	return p
}

func newNodeRestriction(d admission.Deps) library.Interface {
	return nodeRestriction{Objects: storedNodeObjects{d.Client.CoreV1()}, Authorizer: d.Authorizer}
}

// storedNodeObjects reads one object at a time. Some of these kinds have no informer, and nodes rarely write.
type storedNodeObjects struct{ core coreclient.CoreV1Interface }

func (s storedNodeObjects) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return s.core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s storedNodeObjects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return s.core.Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (s storedNodeObjects) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return s.core.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s storedNodeObjects) VolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return s.core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s storedNodeObjects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return s.core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// CSIDriver uses the REST client, because no other code needs a typed client of storage.
func (s storedNodeObjects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	driver := &storagev1.CSIDriver{}
	err := s.core.RESTClient().Get().AbsPath("/apis/storage.k8s.io/v1/csidrivers", name).Do(ctx).Into(driver)
	return driver, err
}

func newPodTopologyLabels(d admission.Deps) library.Interface {
	if !d.Served(corev1.SchemeGroupVersion.WithResource("nodes")) {
		return nil
	}
	return podTopologyLabels{Nodes: d.Informers.Nodes().Lister()}
}

func newPodResizeValidator(d admission.Deps) library.Interface {
	if !d.Served(corev1.SchemeGroupVersion.WithResource("nodes")) {
		return nil
	}
	return podResizeValidator{Nodes: d.Informers.Nodes().Lister()}
}

func podSecurityPlugin(d admission.Deps, config io.Reader) (library.Interface, error) {
	return newPodSecurity(config, d.Namespace, d.Client)
}

func newDefaultIngressClass(d admission.Deps) library.Interface {
	p := defaultIngressClass{}
	if d.Served(networkingv1.SchemeGroupVersion.WithResource("ingressclasses")) {
		p.Classes = d.Informers.IngressClasses().Lister()
	}
	return p
}

func newResourceQuota(d admission.Deps, config io.Reader) (library.Interface, error) {
	limited, err := quota.LimitedResources(config)
	if err != nil {
		return nil, err
	}
	if !d.Served(corev1.SchemeGroupVersion.WithResource("resourcequotas")) {
		if len(limited) > 0 {
			return nil, errors.New("limitedResources refuse whatever no resource quota covers, and resourcequotas are not served here; " +
				"serve them (--runtime-config), or remove limitedResources")
		}
		return nil, nil
	}
	return quota.New(d.Informers.ResourceQuotas().Lister(), d.Client, limited), nil
}
