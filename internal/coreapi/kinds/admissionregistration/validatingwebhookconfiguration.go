package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func validatingWebhookConfigurationResource() registry.Resource {
	return registry.Resource{
		Name: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.ValidatingWebhookConfiguration{}, List: &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		Samples: []string{
			"metadata: {name: a}",
			"metadata: {name: b}\n" +
				"webhooks:\n" +
				"- {name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: ns, name: s, path: /check}}, rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]}",
		},
		Rules:       validate.OnUpdate(validateValidatingWebhookConfiguration, validateValidatingWebhookConfigurationUpdate),
		Defaults:    defaults.Of(defaultValidatingWebhookConfiguration),
		Columns:     validatingWebhookConfigurationColumns,
		Generations: true,
		Spec: registry.PartOf("webhooks", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *[]admissionregistrationv1.ValidatingWebhook {
			return &c.Webhooks
		}),
	}
}

func validatingWebhookConfigurationColumns() columns.Printer {
	return columns.Show(func(c *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) []any {
		return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
	}, webhookColumns()...)
}

// sideEffects and admissionReviewVersions have no default in v1.

func defaultValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		hook := &c.Webhooks[i]
		defaults.Point(&hook.FailurePolicy, admissionregistrationv1.Fail)
		defaults.Point(&hook.TimeoutSeconds, 10)
		matching(&hook.MatchPolicy, &hook.NamespaceSelector, &hook.ObjectSelector)
		clientConfig(&hook.ClientConfig)
		rules(hook.Rules)
	}
}

func validatingConditions(h *admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.MatchCondition {
	return h.MatchConditions
}

func validateValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	errs := webhookConfiguration(&c.ObjectMeta, validatingHooks(c), nil)
	return append(errs, hookExpressions(c.Webhooks, nil, validatingConditions)...)
}

func validateValidatingWebhookConfigurationUpdate(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	errs := webhookConfiguration(&c.ObjectMeta, validatingHooks(c), validatingHooks(old))
	return append(errs, hookExpressions(c.Webhooks, old.Webhooks, validatingConditions)...)
}

func validatingHooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects, nil,
			w.TimeoutSeconds, w.NamespaceSelector, w.ObjectSelector, w.AdmissionReviewVersions, w.MatchConditions})
	}
	return hooks
}
