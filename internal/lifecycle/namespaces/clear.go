package namespaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/lifecycle/debts"
)

// finalizerEstimate is the expected time until the finalizers of an object are removed.
const finalizerEstimate = 15 * time.Second

// leftoversError reports that objects without finalizers remain although every deletion succeeded.
type leftoversError struct{ namespace, gvr string }

func (e *leftoversError) Error() string {
	return fmt.Sprintf("unexpected items still remain in namespace: %s for gvr: %s", e.namespace, e.gvr)
}

// deleteResource deletes the objects of one resource and counts the remaining ones. Errors name the resource and the
// APIService.
func (w *contentDeleter) deleteResource(ctx context.Context, namespace string, t target) (*deletionResult, error) {
	left, err := w.deleteAndCount(ctx, namespace, t)
	if t.dropped && apierrors.IsNotFound(err) {
		w.knownResources.forget(t)
		return nil, nil // neither in discovery nor served: the resource does not exist
	}
	var leftovers *leftoversError
	if err != nil && (t.apiService != "" || t.hiddenBy != "" || !errors.As(err, &leftovers)) {
		err = t.blame(err)
	}
	return left, err
}

func (w *contentDeleter) deleteAndCount(ctx context.Context, namespace string, t target) (*deletionResult, error) {
	of := w.metadata
	switch {
	case t.hiddenBy != "":
		of = w.hidden
	case t.backend != "":
		of = w.metadataAt(t.backend)
	}
	client := of.Resource(t.GroupVersionResource).Namespace(namespace)
	if t.apiService == "" && t.List {
		if empty, err := isEmpty(ctx, client); empty || err != nil {
			return nil, err
		}
	}
	had, err := w.countObjects(ctx, client, t)
	if cannotList(err, t) {
		t.List, err = false, nil
	}
	if err != nil {
		return nil, err
	}
	collected := false
	if t.DeleteCollection {
		if collected, err = deleteCollection(ctx, client); err != nil {
			return nil, err
		}
	}
	if !t.List {
		return nil, nil // it cannot be counted; kube-controller-manager ignores such resources too
	}
	if !collected {
		if err := deleteEach(ctx, client); err != nil {
			return nil, err
		}
	}
	f, err := w.countLeft(ctx, client, namespace, t)
	var leftovers *leftoversError
	if collected && errors.As(err, &leftovers) {
		// The backend returned 200 without deleting anything. Deleting each object may work.
		if err := deleteEach(ctx, client); err != nil {
			return f, err
		}
		f, err = w.countLeft(ctx, client, namespace, t)
	}
	if err == nil && had > 0 && f.total() == 0 {
		f.deleted = map[content]int{t.content(): had}
	}
	return f, err
}

// cannotList reports whether a backend responded that a resource in its discovery document cannot be listed. Objects of such a
// resource cannot be counted, and the namespace does not wait for them, as in kube-controller-manager's namespace controller. A
// 404 must be a Status: any other 404 comes from a proxy, or from a server that has not installed its paths yet. Local groups
// can list every resource that they serve.
func cannotList(err error, t target) bool {
	return t.apiService != "" && (apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) && !t.dropped && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}

// isEmpty reports whether no objects are stored here. The list is a consistent read of etcd, and most resources have no objects
// in a namespace. It replaces a deletion and a second list.
func isEmpty(ctx context.Context, client metadata.ResourceInterface) (bool, error) {
	var list *metav1.PartialObjectMetadataList
	err := debts.CallBackend(ctx, func(ctx context.Context) (err error) {
		list, err = client.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("list: %w", err)
	}
	return len(list.Items) == 0, nil
}

// countObjects counts the objects at a backend before the deletion.
func (w *contentDeleter) countObjects(ctx context.Context, client metadata.ResourceInterface, t target) (n int, err error) {
	if t.apiService == "" || !t.List {
		return 0, nil
	}
	err = debts.EachObject(ctx, client, func(*metav1.PartialObjectMetadata) error {
		n++
		return nil
	})
	return n, err
}

// deleteCollection deletes all objects and reports whether the backend reported success.
func deleteCollection(ctx context.Context, client metadata.ResourceInterface) (bool, error) {
	background := metav1.DeletePropagationBackground
	err := debts.CallBackend(ctx, func(ctx context.Context) error {
		return client.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("delete collection: %w", err)
}

func deleteEach(ctx context.Context, client metadata.ResourceInterface) error {
	var failures []error
	err := debts.EachObject(ctx, client, func(o *metav1.PartialObjectMetadata) error {
		err := debts.DeleteObject(ctx, client, o, nil)
		switch {
		case err == nil, apierrors.IsMethodNotSupported(err):
			return nil
		case debts.IsUnreachable(err):
			return err
		}
		failures = append(failures, err)
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(failures...)
}

// countLeft counts the remaining objects. A 404 that does not come from the resource's server is an error and not an empty
// list: otherwise the objects of a faulty backend would be orphaned, see cannotList. If the resource does not exist any more,
// discovery drops it a moment later.
func (w *contentDeleter) countLeft(ctx context.Context, client metadata.ResourceInterface, namespace string, t target) (*deletionResult, error) {
	f := &deletionResult{finalizers: map[string]int{}}
	held := 0
	err := debts.EachObject(ctx, client, func(o *metav1.PartialObjectMetadata) error {
		f.remain(t.content(), 1)
		if len(o.Finalizers) > 0 {
			held++
			f.estimate = finalizerEstimate
		}
		for _, name := range o.Finalizers {
			f.finalizers[name]++
		}
		return nil
	})
	if err != nil || f.total() == 0 {
		return f, err
	}
	if t.Group == "" && t.Name == "pods" {
		grace, err := w.podGrace(ctx, namespace)
		if err != nil {
			return f, err
		}
		f.estimate = max(f.estimate, grace)
	}
	if held == 0 && f.estimate == 0 {
		return f, &leftoversError{namespace: namespace, gvr: t.GroupVersionResource.String()}
	}
	return f, nil
}

// podGrace returns the longest remaining grace period of the running pods.
func (w *contentDeleter) podGrace(ctx context.Context, namespace string) (time.Duration, error) {
	var longest time.Duration
	options := metav1.ListOptions{Limit: debts.PageSize}
	for {
		var page *corev1.PodList
		err := debts.CallBackend(ctx, func(ctx context.Context) (err error) {
			page, err = w.client.CoreV1().Pods(namespace).List(ctx, options)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			longest = max(longest, graceLeft(&page.Items[i], time.Now()))
		}
		if page.Continue == "" || page.Continue == options.Continue {
			return longest, nil
		}
		options.Continue = page.Continue
	}
}

func graceLeft(pod *corev1.Pod, now time.Time) time.Duration {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case pod.DeletionTimestamp != nil:
		// The deletionTimestamp of a pod is the end of its grace period.
		return max(0, pod.DeletionTimestamp.Sub(now))
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return 0
}
