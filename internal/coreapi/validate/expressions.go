package validate

import (
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	celenv "k8s.io/apiserver/pkg/cel/environment"
)

// Expressions are compiled when they are written: one that does not compile would fail, or let through, every request
// that it is about, and nobody would be told but those who make them.

// plainCompiler knows no variables. It is made once: its environment takes milliseconds.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion()))
})

// expressions compiles what one object says.
type expressions struct {
	compiler plugincel.Compiler
	// stored are expressions that the object had before: they may use what newer ones may not any more.
	stored sets.Set[string]
	// params says whether they can read the parameter object.
	params bool
	errs   field.ErrorList
}

// compile leaves empty expressions to the rules that ask for them.
func (e *expressions) compile(compiler plugincel.Compiler, text string, accessor plugincel.ExpressionAccessor, authorizer, patches bool, path *field.Path) {
	if strings.TrimSpace(text) == "" {
		return
	}
	declared := plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: authorizer, HasPatchTypes: patches}
	e.report(compiler.CompileCELExpression(accessor, declared, e.kind(text)).Error, text, path)
}

func (e *expressions) kind(text string) celenv.Type {
	if e.stored.Has(text) {
		return celenv.StoredExpressions
	}
	return celenv.NewExpressions
}

func (e *expressions) report(err *apiservercel.Error, text string, path *field.Path) {
	switch {
	case err == nil:
	case err.Type == apiservercel.ErrorTypeRequired:
		e.errs = append(e.errs, field.Required(path, err.Detail))
	case err.Type == apiservercel.ErrorTypeInvalid:
		e.errs = append(e.errs, field.Invalid(path, text, err.Detail))
	default:
		e.errs = append(e.errs, field.InternalError(path, err))
	}
}

func (e *expressions) conditions(list []admissionregistrationv1.MatchCondition, path *field.Path) {
	for i, c := range list {
		e.compile(plainCompiler(), c.Expression, &matchconditions.MatchCondition{Expression: strings.TrimSpace(c.Expression)},
			true, false, path.Index(i).Child("expression"))
	}
}

// variables are known to what follows, and to variables after them.
func (e *expressions) variables(list []admissionregistrationv1.Variable, path *field.Path) {
	composed, err := plugincel.NewCompositedCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion()))
	if err != nil {
		e.errs = append(e.errs, field.InternalError(path, err))
		e.compiler = plainCompiler()
		return
	}
	e.compiler = composed
	for i, v := range list {
		if v.Name == "" || strings.TrimSpace(v.Expression) == "" {
			continue
		}
		declared := plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: true}
		result := composed.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, e.kind(v.Expression))
		e.report(result.Error, v.Expression, path.Index(i).Child("expression"))
	}
}

func ValidateValidatingAdmissionPolicyExpressions(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	e := &expressions{stored: validatingTexts(old), params: p.Spec.ParamKind != nil}
	spec := field.NewPath("spec")
	e.conditions(p.Spec.MatchConditions, spec.Child("matchConditions"))
	e.variables(p.Spec.Variables, spec.Child("variables"))
	for i, v := range p.Spec.Validations {
		at := spec.Child("validations").Index(i)
		e.compile(e.compiler, v.Expression, &validating.ValidationCondition{Expression: strings.TrimSpace(v.Expression)}, true, false, at.Child("expression"))
		e.compile(e.compiler, v.MessageExpression, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression},
			false, false, at.Child("messageExpression"))
	}
	for i, a := range p.Spec.AuditAnnotations {
		e.compile(e.compiler, a.ValueExpression, &validating.AuditAnnotationCondition{ValueExpression: strings.TrimSpace(a.ValueExpression)},
			true, false, spec.Child("auditAnnotations").Index(i).Child("valueExpression"))
	}
	return e.errs
}

func validatingTexts(p *admissionregistrationv1.ValidatingAdmissionPolicy) sets.Set[string] {
	texts := sets.New[string]()
	if p == nil {
		return texts
	}
	for _, c := range p.Spec.MatchConditions {
		texts.Insert(c.Expression)
	}
	for _, v := range p.Spec.Variables {
		texts.Insert(v.Expression)
	}
	for _, v := range p.Spec.Validations {
		texts.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range p.Spec.AuditAnnotations {
		texts.Insert(a.ValueExpression)
	}
	return texts
}

func ValidateMutatingAdmissionPolicyExpressions(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	e := &expressions{stored: mutatingTexts(old), params: p.Spec.ParamKind != nil}
	spec := field.NewPath("spec")
	e.conditions(p.Spec.MatchConditions, spec.Child("matchConditions"))
	e.variables(p.Spec.Variables, spec.Child("variables"))
	for i, m := range p.Spec.Mutations {
		at := spec.Child("mutations").Index(i)
		if apply := m.ApplyConfiguration; apply != nil && m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration {
			e.compile(e.compiler, apply.Expression, &patch.ApplyConfigurationCondition{Expression: strings.TrimSpace(apply.Expression)},
				true, true, at.Child("applyConfiguration", "expression"))
		}
		if json := m.JSONPatch; json != nil && m.PatchType == admissionregistrationv1.PatchTypeJSONPatch {
			e.compile(e.compiler, json.Expression, &patch.JSONPatchCondition{Expression: strings.TrimSpace(json.Expression)},
				true, true, at.Child("jsonPatch", "expression"))
		}
	}
	return e.errs
}

func mutatingTexts(p *admissionregistrationv1.MutatingAdmissionPolicy) sets.Set[string] {
	texts := sets.New[string]()
	if p == nil {
		return texts
	}
	for _, c := range p.Spec.MatchConditions {
		texts.Insert(c.Expression)
	}
	for _, v := range p.Spec.Variables {
		texts.Insert(v.Expression)
	}
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			texts.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			texts.Insert(m.JSONPatch.Expression)
		}
	}
	return texts
}

// hookExpressions are the conditions of webhooks, which have no parameters.
func hookExpressions[W any](hooks, old []W, conditions func(*W) []admissionregistrationv1.MatchCondition) field.ErrorList {
	e := &expressions{stored: sets.New[string]()}
	for i := range old {
		for _, c := range conditions(&old[i]) {
			e.stored.Insert(c.Expression)
		}
	}
	for i := range hooks {
		e.conditions(conditions(&hooks[i]), field.NewPath("webhooks").Index(i).Child("matchConditions"))
	}
	return e.errs
}

func validatingConditions(h *admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.MatchCondition {
	return h.MatchConditions
}

func mutatingConditions(h *admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MatchCondition {
	return h.MatchConditions
}
