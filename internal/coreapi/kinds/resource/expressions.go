package resource

import (
	"errors"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// celFeatures contains the features that are on by default.
var celFeatures = dracel.Features{EnableConsumableCapacity: true}

func selectors(list []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	return checkEach(list, resourcev1.DeviceSelectorsMaxSize, byTags, path,
		func(s resourcev1.DeviceSelector, at *field.Path) field.ErrorList { return selector(s, false, at) })
}

// selector does not compile a known expression, which was accepted before.
func selector(s resourcev1.DeviceSelector, known bool, path *field.Path) field.ErrorList {
	path = path.Child("cel")
	if s.CEL == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if known {
		return nil
	}
	cost, errs := expression(s.CEL.Expression, false, path.Child("expression"))
	if cost > resourcev1.CELSelectorExpressionMaxCost {
		errs = append(errs, tooCostly(path.Child("expression")))
	}
	return errs
}

func tooCostly(path *field.Path) *field.Error {
	return field.Forbidden(path, "too complex, exceeds cost limit")
}

// expression compiles an expression about a device, and returns its maximum cost.
func expression(text string, derives bool, path *field.Path) (cost uint64, errs field.ErrorList) {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return 0, field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	kind := environment.NewExpressions
	result := dracel.GetCompiler(celFeatures).CompileCELExpression(text, dracel.Options{EnvType: &kind, DerivedAttribute: derives})
	if result.Error != nil {
		return 0, field.ErrorList{expressionError(text, result.Error, path)}
	}
	return result.MaxCost, nil
}

func expressionError(text string, err error, path *field.Path) *field.Error {
	if found := (*cel.Error)(nil); errors.As(err, &found) {
		switch found.Type {
		case cel.ErrorTypeRequired:
			return field.Required(path, found.Detail)
		case cel.ErrorTypeInvalid:
			return field.Invalid(path, text, found.Detail)
		case cel.ErrorTypeInternal:
			return field.InternalError(path, found)
		}
	}
	return field.InternalError(path, fmt.Errorf("unsupported error type: %w", err))
}

// derivation checks the attributes that the requests of one claim derive, and adds up their costs. Derived attributes are
// alpha, so only claims of another server have them.
type derivation struct {
	// constrained contains the attributes in constraints by request or alternative; the key "" stands for all requests.
	constrained map[string]sets.Set[string]
	cost        uint64
}

func constrainedAttributes(constraints []resourcev1.DeviceConstraint) map[string]sets.Set[string] {
	all := map[string]sets.Set[string]{}
	for _, c := range constraints {
		var name string
		switch {
		case c.MatchAttribute != nil:
			name = string(*c.MatchAttribute)
		case c.DistinctAttribute != nil:
			name = string(*c.DistinctAttribute)
		default:
			continue
		}
		about := c.Requests
		if len(about) == 0 {
			about = []string{""}
		}
		for _, request := range about {
			if all[request] == nil {
				all[request] = sets.New[string]()
			}
			all[request].Insert(name)
		}
	}
	return all
}

// check checks the derived attributes of the request or alternative named reference.
func (d *derivation) check(list []resourcev1.DeviceDerivedAttribute, reference string, path *field.Path) field.ErrorList {
	request, _, _ := strings.Cut(reference, "/")
	return checkSet(list, anySize, byHand, byHand, path,
		func(a resourcev1.DeviceDerivedAttribute) string { return string(a.Name) },
		func(a resourcev1.DeviceDerivedAttribute, at *field.Path) field.ErrorList {
			var errs field.ErrorList
			name := string(a.Name)
			if name != "" && !d.constrained[""].Has(name) && !d.constrained[reference].Has(name) && !d.constrained[request].Has(name) {
				errs = append(errs, field.Invalid(at.Child("name"), a.Name,
					"must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"))
			}
			if a.Expression == "" {
				return errs
			}
			cost, wrong := expression(a.Expression, true, at.Child("expression"))
			d.cost += cost
			if cost > resourcev1.DeviceClaimDerivedAttributeCELMaxCost {
				wrong = append(wrong, tooCostly(at.Child("expression")))
			}
			return append(errs, wrong...)
		})
}
