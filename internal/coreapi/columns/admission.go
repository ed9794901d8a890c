package columns

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ValidatingWebhookConfigurationColumns() Printer {
	return show(func(c *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) []any {
		return []any{c.Name, int64(len(c.Webhooks)), ageOf(c, now)}
	}, webhookColumns()...)
}

func MutatingWebhookConfigurationColumns() Printer {
	return show(func(c *admissionregistrationv1.MutatingWebhookConfiguration, now time.Time) []any {
		return []any{c.Name, int64(len(c.Webhooks)), ageOf(c, now)}
	}, webhookColumns()...)
}

func webhookColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		name(), number("Webhooks", "How many webhooks the configuration registers"), age(),
	}
}

func ValidatingAdmissionPolicyColumns() Printer {
	return show(func(p *admissionregistrationv1.ValidatingAdmissionPolicy, now time.Time) []any {
		return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), ageOf(p, now)}
	}, name(), number("Validations", "How many validations the policy makes"), paramKindColumn(), age())
}

func MutatingAdmissionPolicyColumns() Printer {
	return show(func(p *admissionregistrationv1.MutatingAdmissionPolicy, now time.Time) []any {
		return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), ageOf(p, now)}
	}, name(), number("Mutations", "How many mutations the policy makes"), paramKindColumn(), age())
}

func paramKindColumn() metav1.TableColumnDefinition {
	return text("ParamKind", "The kind of object that the policy takes its parameters from")
}

func paramKind(kind *admissionregistrationv1.ParamKind) string {
	if kind == nil {
		return unset
	}
	return kind.APIVersion + "/" + kind.Kind
}

func ValidatingAdmissionPolicyBindingColumns() Printer {
	return show(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, now time.Time) []any {
		return []any{b.Name, b.Spec.PolicyName, params(b.Spec.ParamRef), ageOf(b, now)}
	}, policyBindingColumns()...)
}

func MutatingAdmissionPolicyBindingColumns() Printer {
	return show(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, now time.Time) []any {
		return []any{b.Name, b.Spec.PolicyName, params(b.Spec.ParamRef), ageOf(b, now)}
	}, policyBindingColumns()...)
}

func policyBindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		name(), text("PolicyName", "The policy that is bound"),
		text("ParamRef", "The object or the selector that gives the policy its parameters"), age(),
	}
}

// params shows a name without namespace as */name: whether the parameter is namespaced cannot be seen from here.
func params(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil:
		return unset
	case ref.Name != "":
		return orElse(ref.Namespace, "*") + "/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	}
	return unset
}
