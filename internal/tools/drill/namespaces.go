package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Operations on namespaces, and checks of their deletion.

const emptyConfigMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`

func (s *Stage) createNamespaceWithWidget(ctx context.Context, name string) error {
	if err := s.createNamespace(ctx, name); err != nil {
		return err
	}
	if err := s.create(ctx, "/api/v1/namespaces/"+name+"/configmaps", emptyConfigMap); err != nil {
		return err
	}
	return s.createObject(ctx, s.subject, name, "held")
}

func (s *Stage) deleteNamespace(ctx context.Context, name string) error {
	s.progress("deleting namespace " + name)
	if err := s.client.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return nil
}

// mendAndAwait ends the fault, measures the deletion of a namespace, and inspects the server's store for leftover
// objects.
func (s *Stage) mendAndAwait(ctx context.Context, name string, limit time.Duration) error {
	if err := s.endFault(); err != nil {
		return err
	}
	if err := s.measure(ctx, namespaceGone, limit, s.namespaceGone(name)); err != nil {
		return err
	}
	if err := s.measure(ctx, objectsGone, time.Second, s.nothingStored(name)); err != nil {
		return err
	}
	return s.recovery(ctx)
}

func (s *Stage) nothingStored(namespace string) func(context.Context) bool {
	return func(context.Context) bool { return s.subject.Stored(namespace) == 0 }
}

func (s *Stage) configMapGone(namespace, name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		_, err := s.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}

func (s *Stage) namespaceNames(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		ns, err := s.client.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		return namesIt(ns.Status.Conditions, s.subject.group)
	}
}

// namesIt reports whether a condition of the namespace names the cause of the delay: the APIService (v1.GROUP) or, as
// kube-apiserver does, the group-version.
func namesIt(conditions []corev1.NamespaceCondition, group string) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NamespaceCondition) bool {
		return c.Status == corev1.ConditionTrue && (strings.Contains(c.Message, "v1."+group) || strings.Contains(c.Message, group+"/v1"))
	})
}

func (s *Stage) annotate(ctx context.Context, apiService, name, value string) error {
	err := s.client.REST().Patch(types.MergePatchType).AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/" + apiService).
		Body([]byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value))).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("annotate apiservice %s: %w", apiService, err)
	}
	return nil
}
