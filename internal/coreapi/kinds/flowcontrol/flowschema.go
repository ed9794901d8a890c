package flowcontrol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func flowSchemaResource() registry.Resource {
	return registry.Resource{
		Name: "flowschemas", Singular: "flowschema", ClusterScoped: true, AllowUnconditionalUpdate: true, Generations: true,
		Object: &flowcontrolv1.FlowSchema{}, List: &flowcontrolv1.FlowSchemaList{},
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec:\n" +
				"  priorityLevelConfiguration: {name: p}\n" +
				"  rules:\n" +
				"  - subjects: [{kind: ServiceAccount, serviceAccount: {name: '*', namespace: ns}}]\n" +
				"    nonResourceRules: [{verbs: ['*'], nonResourceURLs: [/healthz/*]}]",
		},
		Rules:    validate.WithStatus(validateFlowSchema, validateFlowSchemaUpdate, validateFlowSchemaStatus),
		Defaults: defaults.Of(defaultFlowSchema),
		Columns:  flowSchemaColumns,
		Spec:     registry.SpecOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaSpec { return &f.Spec }),
		Status:   registry.StatusOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &f.Status }),
	}
}

func flowSchemaColumns() columns.Printer {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	p := columns.Show(func(f *flowcontrolv1.FlowSchema, now time.Time) []any {
		distinguisher := columns.None
		if f.Spec.DistinguisherMethod != nil {
			distinguisher = string(f.Spec.DistinguisherMethod.Type)
		}
		return []any{
			f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), distinguisher, columns.AgeOf(f, now),
			dangling(f),
		}
	}, columns.Name(), columns.Text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
		columns.Text("MatchingPrecedence", doc["matchingPrecedence"]), columns.Text("DistinguisherMethod", doc["distinguisherMethod"]),
		columns.Age(), columns.Text("MissingPL", "Whether the priority level that it names is missing"))
	// Lists are sorted in the order in which requests are matched against the schemas.
	p.Order = func(items []runtime.Object) { slices.SortStableFunc(items, byPrecedence) }
	return p
}

func byPrecedence(a, b runtime.Object) int {
	left, isLeft := a.(*flowcontrolv1.FlowSchema)
	right, isRight := b.(*flowcontrolv1.FlowSchema)
	if !isLeft || !isRight {
		return 0
	}
	return cmp.Or(
		cmp.Compare(left.Spec.MatchingPrecedence, right.Spec.MatchingPrecedence),
		cmp.Compare(left.Name, right.Name))
}

func dangling(f *flowcontrolv1.FlowSchema) string {
	for _, condition := range f.Status.Conditions {
		if condition.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(condition.Status)
		}
	}
	return "?"
}

func defaultFlowSchema(f *flowcontrolv1.FlowSchema) { defaults.Set(&f.Spec.MatchingPrecedence, 1000) }

func validateFlowSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	errs := validate.ObjectMeta(&f.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, precedence(f, spec.Child("matchingPrecedence"))...)
	if d := f.Spec.DistinguisherMethod; d != nil {
		errs = append(errs, validate.OneOf(d.Type, spec.Child("distinguisherMethod", "type"),
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	level, path := f.Spec.PriorityLevelConfiguration.Name, spec.Child("priorityLevelConfiguration", "name")
	if level == "" {
		errs = append(errs, field.Required(path, "must reference a priority level"))
	} else {
		errs = append(errs, validate.Invalid(path, level, validation.NameIsDNSSubdomain(level, false))...)
	}
	errs = append(errs, validate.Each(f.Spec.Rules, spec.Child("rules"), flowRules)...)
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if f.Name == fixed.Name && !apiequality.Semantic.DeepEqual(f.Spec, fixed.Spec) {
			errs = append(errs, field.Invalid(spec, f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
		}
	}
	return append(errs, validateFlowSchemaStatus(f, nil)...)
}

func validateFlowSchemaUpdate(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateFlowSchema(f)
}

func validateFlowSchemaStatus(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	types := make([]string, 0, len(f.Status.Conditions))
	for _, condition := range f.Status.Conditions {
		types = append(types, string(condition.Type))
	}
	return conditionTypes(types)
}

func conditionTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, kind := range types {
		path := field.NewPath("status", "conditions").Index(i).Child("type")
		if kind == "" {
			errs = append(errs, field.Required(path, "must not be empty"))
		}
		if seen.Has(kind) {
			errs = append(errs, field.Duplicate(path, kind))
		}
		seen.Insert(kind)
	}
	return errs
}

// precedence reserves 1 for the schema that exempts system:masters, which must be matched first.
func precedence(f *flowcontrolv1.FlowSchema, path *field.Path) field.ErrorList {
	switch p := f.Spec.MatchingPrecedence; {
	case p <= 0:
		return field.ErrorList{field.Invalid(path, p, "must be a positive value")}
	case p > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		return field.ErrorList{field.Invalid(path, p,
			fmt.Sprintf("must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))}
	case p == 1 && f.Name != flowcontrolv1.FlowSchemaNameExempt:
		return field.ErrorList{field.Invalid(path, p, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

func flowRules(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	errs = append(errs, validate.Each(r.Subjects, path.Child("subjects"), flowSubject)...)
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	errs = append(errs, validate.Each(r.ResourceRules, path.Child("resourceRules"), flowResourceRule)...)
	return append(errs, validate.Each(r.NonResourceRules, path.Child("nonResourceRules"), flowURLRule)...)
}

// flowSubject requires exactly the member for the kind.
func flowSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := false
	for _, member := range []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		said  bool
		check func(*field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil,
			func(p *field.Path) field.ErrorList { return flowAccount(s.ServiceAccount, p) }},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil,
			func(p *field.Path) field.ErrorList { return flowName(s.User.Name, p) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil,
			func(p *field.Path) field.ErrorList { return flowName(s.Group.Name, p) }},
	} {
		at := path.Child(member.name)
		switch {
		case s.Kind == member.kind && member.said:
			errs = append(errs, member.check(at)...)
		case s.Kind == member.kind:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", member.name, s.Kind)))
		case member.said:
			errs = append(errs, field.Forbidden(at,
				fmt.Sprintf("%s is forbidden when subject kind is not '%s'", member.name, member.kind)))
		}
		known = known || s.Kind == member.kind
	}
	if !known {
		return validate.OneOf(s.Kind, path.Child("kind"), flowcontrolv1.SubjectKindGroup,
			flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	}
	return errs
}

func flowAccount(a *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	errs := flowName(a.Name, path)
	if a.Name != "" && a.Name != flowcontrolv1.NameAll {
		errs = append(errs, validate.Invalid(path.Child("name"), a.Name, validation.ValidateServiceAccountName(a.Name, false))...)
	}
	if a.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, validate.Invalid(path.Child("namespace"), a.Namespace, validation.ValidateNamespaceName(a.Namespace, false))...)
}

func flowName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return nil
}

func flowResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := flowVerbs(r.Verbs, path.Child("verbs"))
	errs = append(errs, wildcardList(r.APIGroups, path.Child("apiGroups"),
		"resource rules must supply at least one api group", "if '*' is present, must not specify other api groups")...)
	errs = append(errs, wildcardList(r.Resources, path.Child("resources"),
		"resource rules must supply at least one resource", "if '*' is present, must not specify other resources")...)
	namespaces := path.Child("namespaces")
	switch {
	case len(r.Namespaces) == 0 && !r.ClusterScope:
		return append(errs, field.Required(namespaces,
			"resource rules that are not cluster scoped must supply at least one namespace"))
	case slices.Contains(r.Namespaces, "*"):
		return append(errs, wildcardList(r.Namespaces, namespaces, "", "if '*' is present, must not specify other namespaces")...)
	}
	for i, namespace := range r.Namespaces {
		for _, message := range validation.ValidateNamespaceName(namespace, false) {
			errs = append(errs, field.Invalid(namespaces.Index(i), namespace,
				"each member of this list must be '*' or a DNS-1123 label; "+message))
		}
	}
	return errs
}

func flowURLRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := flowVerbs(r.Verbs, path.Child("verbs"))
	urls := path.Child("nonResourceURLs")
	errs = append(errs, wildcardList(r.NonResourceURLs, urls, "nonResourceURLs must contain at least one value",
		"if '*' is present, must not specify other non-resource URLs")...)
	if slices.Contains(r.NonResourceURLs, "*") {
		return errs
	}
	return append(errs, validate.EachValue(r.NonResourceURLs, urls, flowURL)...)
}

func flowVerbs(verbs []string, path *field.Path) field.ErrorList {
	errs := wildcardList(verbs, path, "verbs must contain at least one value",
		"if '*' is present, must not specify other verbs")
	if slices.Contains(verbs, "*") {
		return errs
	}
	known := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	if !sets.New(known...).HasAll(verbs...) {
		errs = append(errs, field.NotSupported(path, verbs, known))
	}
	return errs
}

// wildcardList requires a list that is not empty, and a wildcard to be the only item.
func wildcardList(values []string, path *field.Path, whenEmpty, whenMixed string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, whenEmpty)}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, whenMixed)}
	}
	return nil
}

func flowURL(url string, path *field.Path) field.ErrorList {
	stars := strings.Count(url, "*")
	switch {
	case url == "":
		return field.ErrorList{field.Invalid(path, url, "must not be empty")}
	case !strings.HasPrefix(url, "/"):
		return field.ErrorList{field.Invalid(path, url, "must start with slash")}
	case strings.Contains(url, " "):
		return field.ErrorList{field.Invalid(path, url, "must not contain white-space")}
	case strings.Contains(url, "//"):
		return field.ErrorList{field.Invalid(path, url, "must not contain double slash")}
	case stars > 1 || stars == 1 && !strings.HasSuffix(url, "/*"):
		return field.ErrorList{field.Invalid(path, url, "wildcard can only do suffix matching")}
	}
	return nil
}
