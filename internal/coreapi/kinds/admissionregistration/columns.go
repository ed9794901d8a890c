package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/columns"
)

func webhookColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		columns.Name(), columns.Number("Webhooks", "How many webhooks the configuration registers"), columns.Age(),
	}
}

func paramKindColumn() metav1.TableColumnDefinition {
	return columns.Text("ParamKind", "The kind of object that the policy takes its parameters from")
}

func paramKindCell(kind *admissionregistrationv1.ParamKind) string {
	if kind == nil {
		return columns.Unset
	}
	return kind.APIVersion + "/" + kind.Kind
}

func policyBindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		columns.Name(), columns.Text("PolicyName", "The policy that is bound"),
		columns.Text("ParamRef", "The object or the selector that gives the policy its parameters"), columns.Age(),
	}
}

// params renders a name without a namespace as */name, because a binding does not contain the scope of the parameter's kind.
func params(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil:
		return columns.Unset
	case ref.Name != "":
		return columns.OrElse(ref.Namespace, "*") + "/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	}
	return columns.Unset
}
