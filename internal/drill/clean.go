package drill

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// cleanWithin bounds cleaning up as a whole, also after an interruption.
	cleanWithin = 90 * time.Second
	// removeFinalizers is how long the drill's objects may take to go by themselves before their finalizers are taken away.
	removeFinalizers = 30 * time.Second
)

// clean takes away what the drill made and returns what it could not. The registrations go first: from then on nothing
// that the drill broke can hold up its namespaces.
func (s *Stage) clean(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
	defer cancel()
	var left []string
	for _, name := range s.apiServices {
		if err := s.cleanAPIService(ctx, name); err != nil {
			left = append(left, err.Error())
		}
	}
	for _, name := range s.namespaces {
		err := s.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			left = append(left, fmt.Sprintf("namespace %s: %v", name, err))
		}
	}
	for _, name := range s.namespaces {
		if err := s.awaitNamespaceGone(ctx, name); err != nil {
			left = append(left, err.Error())
		}
	}
	return left
}

func (s *Stage) cleanAPIService(ctx context.Context, name string) error {
	path := "/apis/apiregistration.k8s.io/v1/apiservices/" + name
	err := s.client.CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("apiservice %s: %w", name, err)
	}
	gone := func(ctx context.Context) bool {
		return apierrors.IsNotFound(s.client.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Error())
	}
	if _, went, err := s.until(ctx, removeFinalizers, gone); err != nil || went {
		return err
	}
	// Whoever put a finalizer on an object of ours has had the time to use it.
	err = s.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("apiservice %s: %w", name, err)
	}
	return nil
}

// awaitNamespaceGone waits; a namespace that is still there then is finalized by hand. It is the drill's own, and what
// its extension servers stored ends with this process.
func (s *Stage) awaitNamespaceGone(ctx context.Context, name string) error {
	if _, went, err := s.until(ctx, removeFinalizers, s.namespaceGone(name)); err != nil || went {
		return err
	}
	ns, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	ns.Spec.Finalizers = nil
	if _, err := s.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return fmt.Errorf("namespace %s did not go within %s and was finalized by hand", name, removeFinalizers)
}

func (s *Stage) namespaceGone(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		_, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}
