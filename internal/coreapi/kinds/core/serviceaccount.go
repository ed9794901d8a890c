package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// onlyNamesOfSecrets drops all fields of secret references except the names, because the secrets are in the service account's
// namespace.
func onlyNamesOfSecrets(obj runtime.Object) {
	secrets := obj.(*corev1.ServiceAccount).Secrets
	for i := range secrets {
		secrets[i] = corev1.ObjectReference{Name: secrets[i].Name}
	}
}

func serviceAccountResource() registry.Resource {
	return registry.Resource{
		Name: "serviceaccounts", Singular: "serviceaccount", ShortNames: []string{"sa"},
		Object: &corev1.ServiceAccount{}, List: &corev1.ServiceAccountList{}, WatchCache: true, AllowUnconditionalUpdate: true, ReturnDeletedObject: true,
		Samples:       []string{"metadata: {name: a, namespace: ns}"},
		Rules:         validate.SameOnUpdate(validateServiceAccount),
		Columns:       serviceAccountColumns,
		Storages:      serviceAccountStorages,
		PrepareCreate: onlyNamesOfSecrets, PrepareUpdate: func(obj, _ runtime.Object) { onlyNamesOfSecrets(obj) },
	}
}

func serviceAccountColumns() columns.Printer {
	return columns.Show(func(s *corev1.ServiceAccount, now time.Time) []any {
		return []any{s.Name, columns.AgeOf(s, now)}
	}, columns.Name(), columns.Age())
}

func validateServiceAccount(s *corev1.ServiceAccount) field.ErrorList {
	return validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.ValidateServiceAccountName)
}
