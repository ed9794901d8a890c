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

func mutatingWebhookConfigurationResource() registry.Resource {
	return registry.Resource{
		Name: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration", Categories: []string{"api-extensions"}, ClusterScoped: true,
		Object: &admissionregistrationv1.MutatingWebhookConfiguration{}, List: &admissionregistrationv1.MutatingWebhookConfigurationList{},
		Samples: []string{
			"metadata: {name: a}",
			"metadata: {name: b}\n" +
				"webhooks:\n" +
				"- {name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: ns, name: s, path: /check}}, rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [configmaps]}]}",
		},
		Rules:       validate.OnUpdate(validateMutatingWebhookConfiguration, validateMutatingWebhookConfigurationUpdate),
		Defaults:    defaults.Of(defaultMutatingWebhookConfiguration),
		Columns:     mutatingWebhookConfigurationColumns,
		Generations: true,
		Spec: registry.PartOf("webhooks", func(c *admissionregistrationv1.MutatingWebhookConfiguration) *[]admissionregistrationv1.MutatingWebhook {
			return &c.Webhooks
		}),
	}
}

func mutatingWebhookConfigurationColumns() columns.Printer {
	return columns.Show(func(c *admissionregistrationv1.MutatingWebhookConfiguration, now time.Time) []any {
		return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
	}, webhookColumns()...)
}

func defaultMutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		hook := &c.Webhooks[i]
		defaults.Point(&hook.FailurePolicy, admissionregistrationv1.Fail)
		defaults.Point(&hook.TimeoutSeconds, 10)
		defaults.Point(&hook.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		matching(&hook.MatchPolicy, &hook.NamespaceSelector, &hook.ObjectSelector)
		clientConfig(&hook.ClientConfig)
		rules(hook.Rules)
	}
}

func mutatingConditions(h *admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MatchCondition {
	return h.MatchConditions
}

func validateMutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	errs := webhookConfiguration(&c.ObjectMeta, mutatingHooks(c), nil)
	return append(errs, hookExpressions(c.Webhooks, nil, mutatingConditions)...)
}

func validateMutatingWebhookConfigurationUpdate(c, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	errs := webhookConfiguration(&c.ObjectMeta, mutatingHooks(c), mutatingHooks(old))
	return append(errs, hookExpressions(c.Webhooks, old.Webhooks, mutatingConditions)...)
}

func mutatingHooks(c *admissionregistrationv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, 0, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks = append(hooks, hook{w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects,
			w.ReinvocationPolicy, w.TimeoutSeconds, w.NamespaceSelector, w.ObjectSelector, w.AdmissionReviewVersions,
			w.MatchConditions})
	}
	return hooks
}
