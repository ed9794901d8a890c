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

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/accounts"
	"portico.dev/internal/coreapi/admission/classes"
	"portico.dev/internal/coreapi/admission/limits"
	"portico.dev/internal/coreapi/admission/nodes"
	"portico.dev/internal/coreapi/admission/podsecurity"
	"portico.dev/internal/coreapi/admission/priority"
	"portico.dev/internal/coreapi/admission/runtimeclass"
	"portico.dev/internal/coreapi/quota"
)

// A lister is asked for only where there is something to list: an informer of what is not served never syncs.

func limitRanger(d admission.Deps) library.Interface {
	p := limits.Plugin{}
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

func serviceAccount(d admission.Deps) library.Interface {
	return accounts.Plugin{
		Accounts: d.Informers.ServiceAccounts().Lister(),
		Get: func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
			return d.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		},
	}
}

func podPriority(d admission.Deps) library.Interface {
	p := priority.Plugin{}
	if d.Served(schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")) {
		p.Classes = d.Informers.PriorityClasses().Lister()
		p.Get = func(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
			return d.Client.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
		}
	}
	return p
}

func runtimeClass(d admission.Deps) library.Interface {
	p := runtimeclass.Plugin{}
	if d.Served(nodev1.SchemeGroupVersion.WithResource("runtimeclasses")) {
		p.Classes = d.Informers.RuntimeClasses().Lister()
		p.Get = func(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
			return d.Client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
		}
	}
	return p
}

func storageClass(d admission.Deps) library.Interface {
	p := classes.Storage{}
	if d.Served(storagev1.SchemeGroupVersion.WithResource("storageclasses")) {
		p.Classes = d.Informers.StorageClasses().Lister()
	}
	return p
}

func claimResize(d admission.Deps) library.Interface {
	p := classes.Resize{}
	if d.Served(storagev1.SchemeGroupVersion.WithResource("storageclasses")) {
		p.Classes = d.Informers.StorageClasses().Lister()
	}
	return p
}

func podTopology(d admission.Deps) library.Interface {
	if !d.Served(corev1.SchemeGroupVersion.WithResource("nodes")) {
		return nil
	}
	return nodes.Topology{Nodes: d.Informers.Nodes().Lister()}
}

func podResize(d admission.Deps) library.Interface {
	if !d.Served(corev1.SchemeGroupVersion.WithResource("nodes")) {
		return nil
	}
	return nodes.Resize{Nodes: d.Informers.Nodes().Lister()}
}

func podSecurity(d admission.Deps, config io.Reader) (library.Interface, error) {
	return podsecurity.New(config, d.Namespace, d.Client)
}

func ingressClass(d admission.Deps) library.Interface {
	p := classes.Ingress{}
	if d.Served(networkingv1.SchemeGroupVersion.WithResource("ingressclasses")) {
		p.Classes = d.Informers.IngressClasses().Lister()
	}
	return p
}

func resourceQuota(d admission.Deps, config io.Reader) (library.Interface, error) {
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
