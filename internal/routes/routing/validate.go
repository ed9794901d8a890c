package routing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/routes/v1alpha1"
)

// The limits of one APIRoute. Rules are evaluated one after another for each request.
const (
	maxBackends = 16
	maxRules    = 64
	maxMatches  = 16
	maxPatterns = 64
	maxPattern  = 253
	maxWeight   = 1_000_000

	maxSharedAge    = 5 * time.Minute
	maxStaleIfError = 24 * time.Hour

	maxIgnored     = 32
	maxMinRequests = 100_000
	minInterval    = time.Second
	maxInterval    = time.Hour
)

// Validate returns the errors in the spec of an APIRoute.
func Validate(o *v1alpha1.APIRoute) field.ErrorList {
	v := validator{group: GroupVersionOf(o.Name).Group, version: GroupVersionOf(o.Name).Version, backends: sets.New[string]()}
	spec := field.NewPath("spec")
	v.checkBackends(o.Spec.Backends, spec.Child("backends"))
	if StoresCustomResources(&o.Spec) {
		v.checkOneOwner(o, spec)
	}
	v.checkRules(o.Spec.Rules, spec.Child("rules"))
	return v.errs
}

// CheckName returns the errors in the name of an APIRoute.
func CheckName(name string, _ bool) []string {
	gv := GroupVersionOf(name)
	if messages := content.IsPathSegmentName(name); len(messages) > 0 {
		return messages
	}
	if gv.Group == "" || len(validation.IsDNS1123Subdomain(gv.Group)) > 0 || len(validation.IsDNS1035Label(gv.Version)) > 0 {
		return []string{`must be the name of an APIService, "<version>.<group>", such as "v1beta1.custom.metrics.k8s.io"`}
	}
	return nil
}

type validator struct {
	group, version string
	backends       sets.Set[string]
	errs           field.ErrorList
}

func (v *validator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *validator) label(at *field.Path, name string) {
	if name == "" {
		v.add(field.Required(at, ""))
		return
	}
	for _, message := range validation.IsDNS1123Label(name) {
		v.add(field.Invalid(at, name, message))
	}
}

func (v *validator) checkBackends(backends []v1alpha1.APIRouteBackend, at *field.Path) {
	if len(backends) == 0 {
		v.add(field.Required(at, "at least one backend is needed: it gets the requests that no rule matches"))
	}
	if len(backends) > maxBackends {
		v.add(field.TooMany(at, len(backends), maxBackends))
	}
	for i := range backends {
		b, at := &backends[i], at.Index(i)
		v.label(at.Child("name"), b.Name)
		if v.backends.Has(b.Name) && b.Name != "" {
			v.add(field.Duplicate(at.Child("name"), b.Name))
		}
		v.backends.Insert(b.Name)
		v.checkService(b, at)
		switch {
		case b.Version == "":
		case b.Version == v.version:
			v.add(field.Invalid(at.Child("version"), b.Version, "is the version of the APIRoute: leave the field out for a backend that serves it"))
		case v.group == customMetrics:
			v.add(field.Forbidden(at.Child("version"), "the versions of custom.metrics.k8s.io have other fields: only apiVersion is changed in what a backend answers"))
		default:
			for _, message := range validation.IsDNS1035Label(b.Version) {
				v.add(field.Invalid(at.Child("version"), b.Version, message))
			}
		}
	}
}

// StoresCustomResources reports whether a backend is the custom resources of the group-version.
func StoresCustomResources(spec *v1alpha1.APIRouteSpec) bool {
	return slices.ContainsFunc(spec.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.CustomResources != nil })
}

// checkOneOwner refuses settings that would store an object of an APIRoute with custom resources in two places, or
// select its backend by more than the resource and the namespace.
func (v *validator) checkOneOwner(o *v1alpha1.APIRoute, spec *field.Path) {
	const why = "is not possible where one of the backends is customResources: each object is stored in one place"
	if HasMetrics(v.group) {
		v.add(field.Forbidden(spec.Child("backends"), "metrics are no custom resources: "+v.group+" is served by extension servers"))
	}
	found := false
	for i, b := range o.Spec.Backends {
		at := spec.Child("backends").Index(i)
		if b.Version != "" {
			v.add(field.Forbidden(at.Child("version"), "another version "+why))
		}
		if b.CustomResources == nil {
			continue
		}
		if found {
			v.add(field.Forbidden(at.Child("customResources"), "another backend is the custom resources of the group-version already"))
		}
		found = true
	}
	for i := range o.Spec.Rules {
		rule, at := &o.Spec.Rules[i], spec.Child("rules").Index(i)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"fallback", rule.Fallback != ""}, {"sharedReads", rule.SharedReads != nil}, {"mirror", rule.Mirror != nil}, {"rollback", rule.Rollback != nil},
		} {
			if f.set {
				v.add(field.Forbidden(at.Child(f.name), why))
			}
		}
		if len(rule.BackendRefs) > 1 {
			v.add(field.Forbidden(at.Child("backendRefs"), "more than one backend "+why))
		}
		for j := range rule.Matches {
			m, at := &rule.Matches[j], at.Child("matches").Index(j)
			for _, f := range []struct {
				name string
				set  bool
			}{
				{"access", m.Access != ""}, {"namespaceSelector", m.NamespaceSelector != nil}, {"names", len(m.Names) > 0}, {"headers", len(m.Headers) > 0},
				{"resources", slices.ContainsFunc(m.Resources, func(p string) bool { return strings.Contains(p, "/") })},
			} {
				if f.set {
					v.add(field.Forbidden(at.Child(f.name), "rules select by resources, without subresources, and by namespaces where one of the backends is customResources: each object is stored in one place"))
				}
			}
		}
	}
}

func (v *validator) checkService(b *v1alpha1.APIRouteBackend, at *field.Path) {
	if b.CustomResources != nil {
		for _, f := range []struct {
			name string
			set  bool
		}{{"service", b.Service != nil}, {"caBundle", len(b.CABundle) > 0}, {"insecureSkipTLSVerify", b.InsecureSkipTLSVerify}} {
			if f.set {
				v.add(field.Forbidden(at.Child(f.name), "custom resources are served by the front door itself: a backend is a service or customResources"))
			}
		}
		return
	}
	if b.Service == nil {
		if len(b.CABundle) > 0 {
			v.add(field.Forbidden(at.Child("caBundle"), "a backend without a service is the Service of the APIService, whose spec.caBundle is used"))
		}
		if b.InsecureSkipTLSVerify {
			v.add(field.Forbidden(at.Child("insecureSkipTLSVerify"), "a backend without a service is the Service of the APIService, whose spec.insecureSkipTLSVerify is used"))
		}
		return
	}
	service := at.Child("service")
	v.label(service.Child("namespace"), b.Service.Namespace)
	if b.Service.Name == "" {
		v.add(field.Required(service.Child("name"), ""))
	} else {
		for _, message := range validation.IsDNS1035Label(b.Service.Name) {
			v.add(field.Invalid(service.Child("name"), b.Service.Name, message))
		}
	}
	if b.Service.Port != nil {
		for _, message := range validation.IsValidPortNum(int(*b.Service.Port)) {
			v.add(field.Invalid(service.Child("port"), *b.Service.Port, message))
		}
	}
	if b.InsecureSkipTLSVerify && len(b.CABundle) > 0 {
		v.add(field.Invalid(at.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
}

func (v *validator) checkRules(rules []v1alpha1.APIRouteRule, at *field.Path) {
	if len(rules) > maxRules {
		v.add(field.TooMany(at, len(rules), maxRules))
	}
	names := sets.New[string]()
	for i := range rules {
		rule, at := &rules[i], at.Index(i)
		v.label(at.Child("name"), rule.Name)
		if names.Has(rule.Name) && rule.Name != "" {
			v.add(field.Duplicate(at.Child("name"), rule.Name))
		}
		names.Insert(rule.Name)
		if len(rule.Matches) > maxMatches {
			v.add(field.TooMany(at.Child("matches"), len(rule.Matches), maxMatches))
		}
		for j := range rule.Matches {
			v.checkMatch(&rule.Matches[j], at.Child("matches").Index(j))
		}
		v.checkRefs(rule, at)
		if rule.SharedReads != nil {
			v.checkSharedReads(rule.SharedReads, at.Child("sharedReads"))
		}
		if rule.Mirror != nil {
			v.checkMirror(rule, at.Child("mirror"))
		}
		if rule.Rollback != nil {
			v.checkRollback(rule, at.Child("rollback"))
		}
	}
}

func (v *validator) checkSharedReads(s *v1alpha1.SharedReads, at *field.Path) {
	v.checkDuration(s.MaxAge.Duration, maxSharedAge, at.Child("maxAge"))
	if s.StaleIfError != nil {
		v.checkDuration(s.StaleIfError.Duration, maxStaleIfError, at.Child("staleIfError"))
	}
	if s.Watches && s.Callers != v1alpha1.CallersAll {
		v.add(field.Invalid(at.Child("watches"), true, "needs callers: All: one watch of the backend, which the front door makes, feeds all clients"))
	}
	switch s.Callers {
	case "", v1alpha1.CallersSame, v1alpha1.CallersAll:
	default:
		v.add(field.NotSupported(at.Child("callers"), s.Callers, []v1alpha1.Callers{v1alpha1.CallersSame, v1alpha1.CallersAll}))
	}
}

func (v *validator) checkMirror(rule *v1alpha1.APIRouteRule, at *field.Path) {
	m := rule.Mirror
	v.checkRef(at.Child("backend"), m.Backend)
	if m.Backend != "" && len(rule.BackendRefs) > 0 && !slices.ContainsFunc(rule.BackendRefs, func(ref v1alpha1.BackendRef) bool {
		return ref.Name != m.Backend && weightOf(ref) > 0
	}) {
		v.add(field.Invalid(at.Child("backend"), m.Backend, "is the only backend of the rule: name another one"))
	}
	if m.Percent != nil && (*m.Percent < 0 || *m.Percent > 100) {
		v.add(field.Invalid(at.Child("percent"), *m.Percent, "must be from 0 to 100"))
	}
	if len(m.Ignore) > maxIgnored {
		v.add(field.TooMany(at.Child("ignore"), len(m.Ignore), maxIgnored))
	}
	for i, path := range m.Ignore {
		switch at := at.Child("ignore").Index(i); {
		case path == "":
			v.add(field.Required(at, ""))
		case len(path) > maxPattern:
			v.add(field.TooLong(at, path, maxPattern))
		case slices.Contains(strings.Split(path, "."), ""), strings.ContainsAny(path, "[]* "):
			v.add(field.Invalid(at, path, `must be names of fields joined by dots, such as "status.lastSeen"; elements of lists have no name`))
		}
	}
}

func (v *validator) checkRollback(rule *v1alpha1.APIRouteRule, at *field.Path) {
	b := rule.Rollback
	if len(rule.BackendRefs) == 1 {
		v.add(field.Forbidden(at, "the rule has one backend: rollback sends the requests of another one to the first one of backendRefs"))
	}
	if b.ErrorPercent < 1 || b.ErrorPercent > 100 {
		v.add(field.Invalid(at.Child("errorPercent"), b.ErrorPercent, "must be from 1 to 100"))
	}
	if b.MinRequests != nil && (*b.MinRequests < 1 || *b.MinRequests > maxMinRequests) {
		v.add(field.Invalid(at.Child("minRequests"), *b.MinRequests, fmt.Sprintf("must be from 1 to %d", maxMinRequests)))
	}
	if b.Interval != nil && (b.Interval.Duration < minInterval || b.Interval.Duration > maxInterval) {
		v.add(field.Invalid(at.Child("interval"), b.Interval.Duration.String(), fmt.Sprintf("must be from %s to %s", minInterval, maxInterval)))
	}
}

func (v *validator) checkDuration(d, most time.Duration, at *field.Path) {
	if d < 0 || d > most {
		v.add(field.Invalid(at, d.String(), fmt.Sprintf("must be from 0s to %s", most)))
	}
}

func (v *validator) checkRefs(rule *v1alpha1.APIRouteRule, at *field.Path) {
	refs := at.Child("backendRefs")
	if len(rule.BackendRefs) == 0 {
		v.add(field.Required(refs, "name at least one backend of spec.backends"))
		return
	}
	if len(rule.BackendRefs) > maxBackends {
		v.add(field.TooMany(refs, len(rule.BackendRefs), maxBackends))
	}
	total, seen := int64(0), sets.New[string]()
	for i, ref := range rule.BackendRefs {
		at := refs.Index(i)
		v.checkRef(at.Child("name"), ref.Name)
		if seen.Has(ref.Name) {
			v.add(field.Duplicate(at.Child("name"), ref.Name))
		}
		seen.Insert(ref.Name)
		if ref.Weight == nil {
			total++
			continue
		}
		if w := *ref.Weight; w < 0 || w > maxWeight {
			v.add(field.Invalid(at.Child("weight"), w, fmt.Sprintf("must be from 0 to %d", maxWeight)))
		} else {
			total += int64(w)
		}
	}
	if total == 0 {
		v.add(field.Invalid(refs, 0, "at least one backend must have a weight above 0"))
	}
	if rule.Fallback == "" {
		return
	}
	v.checkRef(at.Child("fallback"), rule.Fallback)
	if len(rule.BackendRefs) == 1 && rule.BackendRefs[0].Name == rule.Fallback {
		v.add(field.Invalid(at.Child("fallback"), rule.Fallback, "is the only backend of the rule: name another one"))
	}
}

func (v *validator) checkRef(at *field.Path, name string) {
	if name == "" {
		v.add(field.Required(at, ""))
	} else if !v.backends.Has(name) {
		v.add(field.NotFound(at, name))
	}
}

func (v *validator) checkMatch(m *v1alpha1.APIRouteMatch, at *field.Path) {
	if apiequality.Semantic.DeepEqual(m, &v1alpha1.APIRouteMatch{}) {
		v.add(field.Required(at, "an empty match holds for every request: leave matches out for that"))
	}
	switch m.Access {
	case "", v1alpha1.AccessRead, v1alpha1.AccessWrite:
	default:
		v.add(field.NotSupported(at.Child("access"), m.Access, []v1alpha1.Access{v1alpha1.AccessRead, v1alpha1.AccessWrite}))
	}
	for _, list := range []struct {
		at       *field.Path
		patterns []string
		slash    bool
	}{
		{at.Child("resources"), m.Resources, true},
		{at.Child("namespaces"), m.Namespaces, false},
		{at.Child("names"), m.Names, false},
		// Names of metrics may contain a slash, although a path never contains one in a name.
		{at.Child("metrics"), m.Metrics, false},
	} {
		v.checkPatterns(list.patterns, list.slash, list.at)
	}
	switch {
	case len(m.Metrics) > 0 && !HasMetrics(v.group):
		v.add(field.Forbidden(at.Child("metrics"), "only custom.metrics.k8s.io and external.metrics.k8s.io have metrics"))
	case v.group == externalMetrics && len(m.Resources) > 0:
		v.add(field.Forbidden(at.Child("resources"), "external.metrics.k8s.io has metrics and no resources: use metrics"))
	case v.group == externalMetrics && len(m.Names) > 0:
		v.add(field.Forbidden(at.Child("names"), "metrics of external.metrics.k8s.io belong to no object: use metrics"))
	case v.group == customMetrics:
		for i, p := range m.Resources {
			if strings.Contains(p, "/") {
				v.add(field.Invalid(at.Child("resources").Index(i), p, "custom.metrics.k8s.io has metrics in place of subresources: use metrics"))
			}
		}
	}
	if m.NamespaceSelector != nil {
		v.errs = append(v.errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
		if len(m.NamespaceSelector.MatchLabels)+len(m.NamespaceSelector.MatchExpressions) == 0 {
			v.add(field.Required(at.Child("namespaceSelector"), "an empty selector selects every namespace: leave it out for that"))
		}
	}
	v.checkHeaders(m.Headers, at.Child("headers"))
}

func (v *validator) checkPatterns(patterns []string, slash bool, at *field.Path) {
	if len(patterns) > maxPatterns {
		v.add(field.TooMany(at, len(patterns), maxPatterns))
	}
	for i, p := range patterns {
		at := at.Index(i)
		switch {
		case p == "":
			v.add(field.Required(at, ""))
		case len(p) > maxPattern:
			v.add(field.TooLong(at, p, maxPattern))
		case !slash && strings.Contains(p, "/"), strings.Count(p, "/") > 1:
			v.add(field.Invalid(at, p, "must not contain '/'"))
		case strings.ContainsAny(p, " \t\r\n,[]{}\\"):
			v.add(field.Invalid(at, p, `must be a name, in which "*" stands for any characters and "?" for any one`))
		}
	}
}

// identityHeaders are prefixes of headers that authentication reads, or that the proxy removes before it sends a
// request to a backend.
var identityHeaders = []string{"authorization", "cookie", "proxy-authorization", "x-forwarded-"}

func (v *validator) checkHeaders(headers []v1alpha1.HeaderMatch, at *field.Path) {
	if len(headers) > maxMatches {
		v.add(field.TooMany(at, len(headers), maxMatches))
	}
	for i, h := range headers {
		name := at.Index(i).Child("name")
		lower := strings.ToLower(h.Name)
		switch {
		case h.Name == "":
			v.add(field.Required(name, ""))
		case len(validation.IsHTTPHeaderName(h.Name)) > 0:
			v.add(field.Invalid(name, h.Name, strings.Join(validation.IsHTTPHeaderName(h.Name), "; ")))
		case strings.HasPrefix(lower, "x-remote-"), strings.HasPrefix(lower, "impersonate-"),
			slices.ContainsFunc(identityHeaders, func(p string) bool { return strings.HasPrefix(lower, p) }):
			v.add(field.Forbidden(name, "headers by which users are authenticated select no backend: use a header of your own, such as X-Canary"))
		}
		if h.Value == "" {
			v.add(field.Required(at.Index(i).Child("value"), ""))
		}
	}
}

// Warnings returns warnings about a valid APIRoute that has parts without effect, or insecure settings.
func Warnings(o *v1alpha1.APIRoute) []string {
	var warnings []string
	gv := GroupVersionOf(o.Name)
	version := map[string]string{}
	for _, b := range o.Spec.Backends {
		version[b.Name] = b.Version
		if b.InsecureSkipTLSVerify {
			warnings = append(warnings, fmt.Sprintf("backend %s: insecureSkipTLSVerify: whoever can answer in place of the service reads every "+
				"request that goes there and the identity of its user; set caBundle instead", b.Name))
		}
	}
	sends := func(ref v1alpha1.BackendRef) bool { return weightOf(ref) > 0 }
	ofOtherVersion := func(ref v1alpha1.BackendRef) bool { return version[ref.Name] != "" }
	for i := range o.Spec.Rules {
		rule := &o.Spec.Rules[i]
		if by := shadowedBy(o.Spec.Rules, i); by != "" {
			warnings = append(warnings, fmt.Sprintf("rule %s never matches: rule %s before it takes all of its requests; put %s first, or delete it", rule.Name, by, rule.Name))
			continue
		}
		if rule.Rollback != nil && len(rule.BackendRefs) > 0 && !slices.ContainsFunc(rule.BackendRefs[1:], sends) {
			warnings = append(warnings, fmt.Sprintf("rule %s: rollback has no effect: no backend but the first one of backendRefs has a weight above 0", rule.Name))
		}
		if len(rule.Matches) > 0 && !slices.ContainsFunc(rule.Matches, func(m v1alpha1.APIRouteMatch) bool { return m.Access != v1alpha1.AccessWrite }) {
			if rule.SharedReads != nil {
				warnings = append(warnings, fmt.Sprintf("rule %s: sharedReads has no effect: the rule matches writes only", rule.Name))
			}
			if rule.Mirror != nil {
				warnings = append(warnings, fmt.Sprintf("rule %s: mirror has no effect: the rule matches writes only", rule.Name))
			}
			if HasMetrics(gv.Group) {
				warnings = append(warnings, fmt.Sprintf("rule %s never matches: %s has no writes", rule.Name, gv.Group))
			} else if slices.ContainsFunc(rule.BackendRefs, ofOtherVersion) {
				warnings = append(warnings, fmt.Sprintf("rule %s sends writes to a backend of another version, which gets reads only: they are answered with 405", rule.Name))
			}
		}
	}
	spec := &v1alpha1.APIRoute{ObjectMeta: o.ObjectMeta, Spec: o.Spec} // a change of the spec invalidates the status
	if r, err := Compile(spec, nil); err == nil {
		for i, used := range r.InUse() {
			if !used && !r.mirrors(i) {
				warnings = append(warnings, fmt.Sprintf("backend %s gets no requests: no rule sends it any", r.Backends[i].Name))
			}
		}
	}
	return warnings
}

// shadowedBy returns the name of the last of the earlier rules that together match all requests of rule i. It is
// empty if some requests reach rule i.
func shadowedBy(rules []v1alpha1.APIRouteRule, i int) string {
	by := ""
	matches := rules[i].Matches
	if len(matches) == 0 {
		matches = []v1alpha1.APIRouteMatch{{}}
	}
	for m := range matches {
		at := slices.IndexFunc(rules[:i], func(earlier v1alpha1.APIRouteRule) bool {
			return len(earlier.Matches) == 0 ||
				slices.ContainsFunc(earlier.Matches, func(wide v1alpha1.APIRouteMatch) bool { return covers(&wide, &matches[m]) })
		})
		if at < 0 {
			return ""
		}
		by = rules[at].Name
	}
	return by
}

// covers reports whether wide matches every request that narrow matches. It may return false although wide does.
func covers(wide, narrow *v1alpha1.APIRouteMatch) bool {
	if wide.Access != "" && wide.Access != narrow.Access {
		return false
	}
	if wide.NamespaceSelector != nil && !apiequality.Semantic.DeepEqual(wide.NamespaceSelector, narrow.NamespaceSelector) {
		return false
	}
	// A pattern of names or namespaces, even "*", does not match a request without one.
	if len(narrow.Namespaces) == 0 && len(wide.Namespaces) > 0 || len(narrow.Names) == 0 && len(wide.Names) > 0 {
		return false
	}
	if !coversAll(wide.Namespaces, narrow.Namespaces, coversPattern) || !coversAll(wide.Names, narrow.Names, coversPattern) ||
		!coversAll(wide.Metrics, narrow.Metrics, coversPattern) || !coversAll(wide.Resources, narrow.Resources, coversResource) {
		return false
	}
	for _, h := range wide.Headers {
		if !slices.ContainsFunc(narrow.Headers, func(n v1alpha1.HeaderMatch) bool {
			return strings.EqualFold(n.Name, h.Name) && n.Value == h.Value
		}) {
			return false
		}
	}
	return true
}

func coversAll(wide, narrow []string, covers func(wide, narrow string) bool) bool {
	if len(wide) == 0 {
		return true
	}
	if len(narrow) == 0 {
		return slices.Contains(wide, "*")
	}
	for _, n := range narrow {
		if !slices.ContainsFunc(wide, func(w string) bool { return covers(w, n) }) {
			return false
		}
	}
	return true
}

// coversResource is coversPattern for resources. A pattern without a slash includes subresources.
func coversResource(wide, narrow string) bool {
	if !strings.Contains(wide, "/") {
		narrow, _, _ = strings.Cut(narrow, "/")
	} else if !strings.Contains(narrow, "/") {
		return false
	}
	return coversPattern(wide, narrow)
}
