package columns

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

func NamespaceColumns() Printer {
	return show(func(n *corev1.Namespace, now time.Time) []any {
		return []any{n.Name, string(n.Status.Phase), ageOf(n, now)}
	}, name(), text("Status", "The phase of the namespace: Active, or Terminating while it is emptied"), age())
}

func ConfigMapColumns() Printer {
	return show(func(c *corev1.ConfigMap, now time.Time) []any {
		return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), ageOf(c, now)}
	}, name(), text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), age())
}

func SecretColumns() Printer {
	doc := corev1.Secret{}.SwaggerDoc()
	return show(func(s *corev1.Secret, now time.Time) []any {
		return []any{s.Name, string(s.Type), int64(len(s.Data)), ageOf(s, now)}
	}, name(), text("Type", doc["type"]), text("Data", doc["data"]), age())
}

func ServiceAccountColumns() Printer {
	return show(func(s *corev1.ServiceAccount, now time.Time) []any {
		return []any{s.Name, ageOf(s, now)}
	}, name(), age())
}
