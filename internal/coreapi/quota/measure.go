package quota

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/clients"
)

// pageSize is the page size for lists of kinds with more than an object count.
const pageSize = 500

// Measurer counts the usage of a namespace. It reads from etcd, because a cache may lack objects that were charged.
type Measurer struct {
	// Client reads pods, services, and claims on volumes and devices; Metadata counts the other kinds. Both access only
	// resources that are served here.
	Client   clients.Interface
	Metadata metadata.Interface
	// Served returns the version in which a kind is served here, or false.
	Served func(schema.GroupResource) (schema.GroupVersionResource, bool)
}

// Measure returns the usage of a quota's namespace, for the limited resources that this server serves. With an error it returns
// a partial result.
func (m *Measurer) Measure(ctx context.Context, q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	wanted := map[schema.GroupResource][]corev1.ResourceName{}
	for name := range q.Spec.Hard {
		for _, kind := range Kinds(name) {
			wanted[kind] = append(wanted[kind], name)
		}
	}
	used := corev1.ResourceList{}
	var errs []error
	for kind, names := range wanted {
		at, ok := m.Served(kind)
		if !ok {
			continue
		}
		ofKind, err := m.ofKind(ctx, q, at, names)
		if err != nil {
			errs = append(errs, fmt.Errorf("count %s: %w", kind, err))
			continue
		}
		used = quota.Add(used, ofKind)
	}
	return used, errors.Join(errs...)
}

func (m *Measurer) ofKind(ctx context.Context, q *corev1.ResourceQuota, at schema.GroupVersionResource, names []corev1.ResourceName) (corev1.ResourceList, error) {
	list := m.lister(ctx, at)
	if list == nil {
		return m.number(ctx, q, at, names)
	}
	stats, err := evaluatorFor(at.GroupResource(), list, newClusterDevices(ctx, m.Client), time.Now).UsageStats(quota.UsageStatsOptions{
		Namespace: q.Namespace, Resources: names, Scopes: q.Spec.Scopes, ScopeSelector: q.Spec.ScopeSelector,
	})
	if err != nil {
		return nil, err
	}
	return quota.Mask(stats.Used, names), nil
}

// number counts objects of a kind but reads only one: etcd returns the number of remaining objects.
func (m *Measurer) number(ctx context.Context, q *corev1.ResourceQuota, at schema.GroupVersionResource, names []corev1.ResourceName) (corev1.ResourceList, error) {
	used := corev1.ResourceList{}
	var n int64
	if len(q.Spec.Scopes) == 0 && (q.Spec.ScopeSelector == nil || len(q.Spec.ScopeSelector.MatchExpressions) == 0) {
		var err error
		if n, err = m.count(ctx, at, q.Namespace); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		used[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return used, nil
}

func (m *Measurer) count(ctx context.Context, at schema.GroupVersionResource, namespace string) (int64, error) {
	options := metav1.ListOptions{Limit: 1}
	var n int64
	for {
		page, err := m.Metadata.Resource(at).Namespace(namespace).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return 0, nil // a CRD that was deleted in the meantime, with its objects
		}
		if err != nil {
			return 0, err
		}
		n += int64(len(page.Items))
		if page.RemainingItemCount != nil {
			return n + *page.RemainingItemCount, nil
		}
		if page.Continue == "" || page.Continue == options.Continue {
			return n, nil
		}
		options.Limit, options.Continue = pageSize, page.Continue
	}
}

// lister returns a lister for kinds with more than an object count, and nil for other kinds.
func (m *Measurer) lister(ctx context.Context, at schema.GroupVersionResource) lister {
	core := m.Client.CoreV1()
	switch at.GroupResource() {
	case corev1.Resource("pods"):
		return pages(func(namespace string, o metav1.ListOptions) ([]runtime.Object, string, error) {
			l, err := core.Pods(namespace).List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return objects(l.Items), l.Continue, nil
		})
	case corev1.Resource("services"):
		return pages(func(namespace string, o metav1.ListOptions) ([]runtime.Object, string, error) {
			l, err := core.Services(namespace).List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return objects(l.Items), l.Continue, nil
		})
	case corev1.Resource("persistentvolumeclaims"):
		return pages(func(namespace string, o metav1.ListOptions) ([]runtime.Object, string, error) {
			l, err := core.PersistentVolumeClaims(namespace).List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return objects(l.Items), l.Continue, nil
		})
	case deviceClaims:
		return claimLister(ctx, m.Client)
	}
	return nil
}

func pages(read func(namespace string, o metav1.ListOptions) (page []runtime.Object, next string, err error)) lister {
	return func(namespace string) ([]runtime.Object, error) {
		var all []runtime.Object
		options := metav1.ListOptions{Limit: pageSize}
		for {
			page, next, err := read(namespace, options)
			if err != nil {
				return nil, err
			}
			all = append(all, page...)
			if next == "" || next == options.Continue {
				return all, nil
			}
			options.Continue = next
		}
	}
}

func objects[T any, P interface {
	*T
	runtime.Object
}](items []T) []runtime.Object {
	out := make([]runtime.Object, len(items))
	for i := range items {
		out[i] = P(&items[i])
	}
	return out
}
