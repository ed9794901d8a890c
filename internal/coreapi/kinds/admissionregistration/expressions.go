package admissionregistration

import (
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	celenv "k8s.io/apiserver/pkg/cel/environment"

	"portico.dev/internal/coreapi/validate"
)

// Expressions are compiled when they are written. One that does not compile would fail, or admit, every request that it
// matches, and only the clients of those requests would notice.

// plainCompiler has no variables. It is created once, because building its environment takes milliseconds.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(celenv.MustBaseEnvSet(celenv.DefaultCompatibilityVersion()))
})

// expressions compiles the expressions of one object.
type expressions struct {
	compiler plugincel.Compiler
	// stored contains the expressions that the object had before. They may use features that new expressions may not.
	stored sets.Set[string]
	// params reports whether expressions can access the parameter object.
	params bool
	errs   field.ErrorList
}

// compile skips empty expressions. Other rules report them if they are required.
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

// conditionTexts returns the expressions of the conditions and variables of a policy.
func conditionTexts(conditions []admissionregistrationv1.MatchCondition, variables []admissionregistrationv1.Variable) sets.Set[string] {
	texts := sets.New[string]()
	for _, c := range conditions {
		texts.Insert(c.Expression)
	}
	for _, v := range variables {
		texts.Insert(v.Expression)
	}
	return texts
}

// variables compiles the variables in order. Each is available to the variables and expressions after it.
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

// hookExpressions compiles the match conditions of webhooks, which have no parameters.
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

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// compiling returns the rules of a kind with expressions. On update, expressions gets the old object too.
func compiling[T runtime.Object](create func(T) field.ErrorList, expressions func(obj, old T) field.ErrorList) validate.Rules {
	none := *new(T)
	return validate.OnUpdate(func(obj T) field.ErrorList { return append(create(obj), expressions(obj, none)...) },
		func(obj, old T) field.ErrorList { return append(create(obj), expressions(obj, old)...) })
}
