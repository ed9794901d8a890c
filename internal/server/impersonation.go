package server

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateUID   = "Impersonate-Uid"
	impersonateGroup = "Impersonate-Group"
	impersonateExtra = "Impersonate-Extra-"
)

// maxImpersonated limits the groups and extra values of one request. Each requires a call of the authorizer, which
// may be a webhook, and the first refusal ends the request. Users of an identity provider may have thousands of
// groups.
const maxImpersonated = 16 << 10

// impersonationFilter lets a caller act as another user if one of the modes of impersonation allows it. It removes
// the headers: a backend that received them would impersonate a second time.
func impersonationFilter(a authorizer.UnconditionalAuthorizer, reservedExtra string) func(http.Handler) http.Handler {
	modes := newImpersonationModes(a)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !wantsImpersonation(r.Header) {
				next.ServeHTTP(w, r)
				return
			}
			wanted, err := impersonationOf(r.Header)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			if wanted == nil {
				next.ServeHTTP(w, r)
				return
			}
			if _, ok := wanted.Extra[reservedExtra]; ok && reservedExtra != "" {
				gr := schema.GroupResource{Group: authenticationGroup, Resource: "userextras"}
				respond.Error(w, r, apierrors.NewForbidden(gr, reservedExtra, errors.New("only this server writes this key")))
				return
			}
			ctx := r.Context()
			asked, err := AttributesOf(ctx)
			if err != nil {
				respond.Error(w, r, apierrors.NewInternalError(err))
				return
			}
			rec := recordFrom(ctx)
			granted, constraint, err := modes.grant(ctx, wanted, asked)
			if err != nil {
				rec.Decision, rec.Reason = "forbid", "impersonation"
				respond.Error(w, r, err)
				return
			}
			rec.Impersonated, rec.Constraint = granted, constraint
			r = r.WithContext(apirequest.WithUser(ctx, granted))
			r.Header = withoutImpersonation(r.Header)
			next.ServeHTTP(w, r)
		})
	}
}

// wantsImpersonation reports whether a header may request impersonation, at no cost for the many requests that do
// not.
func wantsImpersonation(h http.Header) bool {
	for name := range h {
		if name != "" && name[0]|0x20 == 'i' && strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			return true
		}
	}
	return false
}

// impersonationOf returns the identity that the headers request, or nil if they do not request impersonation.
func impersonationOf(h http.Header) (*user.DefaultInfo, error) {
	wanted := &user.DefaultInfo{Groups: append([]string(nil), h[impersonateGroup]...)}
	var err error
	if wanted.Name, err = single(h, impersonateUser); err != nil {
		return nil, err
	}
	if wanted.UID, err = single(h, impersonateUID); err != nil {
		return nil, err
	}
	if wanted.Extra, err = impersonatedExtra(h); err != nil {
		return nil, err
	}
	values := len(wanted.Groups)
	for _, v := range wanted.Extra {
		values += len(v)
	}
	switch {
	case values > maxImpersonated:
		return nil, fmt.Errorf("impersonation of more than %d groups and extra values", maxImpersonated)
	case wanted.Name != "":
		return wanted, nil
	case wanted.UID != "" || values > 0:
		return nil, errors.New("requested impersonation of groups, uid or extra without impersonating a user: send Impersonate-User too")
	}
	return nil, nil
}

// single returns the value of a header that must not be repeated.
func single(h http.Header, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s stands more than once; send it once", name)
}

func impersonatedExtra(h http.Header) (map[string][]string, error) {
	var extra map[string][]string
	for name, values := range h {
		key, found := strings.CutPrefix(textproto.CanonicalMIMEHeaderKey(name), impersonateExtra)
		if !found || len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		if key == "" {
			// Ignoring it could remove a restriction: extra contains the scopes of tokens.
			return nil, errors.New("Impersonate-Extra- without a key: send Impersonate-Extra-KEY")
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], values...)
	}
	return extra, nil
}

func withoutImpersonation(h http.Header) http.Header {
	clean := make(http.Header, len(h))
	for name, values := range h {
		if !strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Impersonate-") {
			clean[name] = values
		}
	}
	return clean
}

// Constrained impersonation (KEP-5284, enabled by default since 1.36) requires two rights: to impersonate this kind
// of user (impersonate:MODE), and to make this request as such a user (impersonate-on:MODE:VERB). The older verb
// impersonate, which allows every request, is checked last and is unchanged.
//
// Allowed impersonations are not cached, although upstream caches them for ten seconds: RBAC answers from memory, a
// webhook has its own cache, and the revocation of a right should take effect at once (attack row B12).

const (
	nodePrefix = "system:node:"
	// associatedKeys stands for the extra of a caller that is a service account on the given node. The values differ
	// from pod to pod; they are checked before the authorizer is called.
	associatedKeys = "authentication.kubernetes.io/associated-node-keys"
)

// impersonationMode is one kind of impersonation.
type impersonationMode struct {
	// name is "" for the older mode.
	name string
	// fits reports whether the mode applies to this identity and this caller. If nil, the mode applies to all.
	fits func(wanted *user.DefaultInfo, caller user.Info) bool
}

func (m *impersonationMode) constrained() bool { return m.name != "" }

func (m *impersonationMode) verb() string {
	if m.constrained() {
		return "impersonate:" + m.name
	}
	return "impersonate"
}

// constraint returns the name of the mode in audit events. The older mode does not have one.
func (m *impersonationMode) constraint() string {
	if m.constrained() {
		return m.verb()
	}
	return ""
}

const associatedNode = "associated-node"

func allImpersonationModes() []impersonationMode {
	return []impersonationMode{
		{associatedNode, func(wanted *user.DefaultInfo, caller user.Info) bool {
			node, ok := nodeName(wanted.Name)
			_, _, err := serviceaccount.SplitUsername(caller.GetName())
			on := caller.GetExtra()[serviceaccount.NodeNameKey]
			return ok && onlyNamed(wanted) && err == nil && len(on) == 1 && on[0] == node
		}},
		{"arbitrary-node", func(wanted *user.DefaultInfo, _ user.Info) bool {
			_, ok := nodeName(wanted.Name)
			return ok && onlyNamed(wanted)
		}},
		{"serviceaccount", func(wanted *user.DefaultInfo, _ user.Info) bool {
			_, _, err := serviceaccount.SplitUsername(wanted.Name)
			return err == nil && onlyNamed(wanted)
		}},
		{"user-info", func(wanted *user.DefaultInfo, _ user.Info) bool {
			_, node := nodeName(wanted.Name)
			_, _, err := serviceaccount.SplitUsername(wanted.Name)
			return !node && err != nil
		}},
		{},
	}
}

// nodeName returns the node that a user name belongs to.
func nodeName(username string) (string, bool) {
	name, ok := strings.CutPrefix(username, nodePrefix)
	return name, ok && len(validation.NameIsDNSSubdomain(name, false)) == 0
}

// onlyNamed reports whether only a name is requested. A caller cannot choose the groups and extra of a node or a
// service account.
func onlyNamed(u user.Info) bool {
	return u.GetUID() == "" && len(u.GetGroups()) == 0 && len(u.GetExtra()) == 0
}

// impersonationModes finds a mode that allows an impersonation.
type impersonationModes struct {
	authorizer authorizer.UnconditionalAuthorizer
	modes      []impersonationMode
	// last maps the hash of a caller's name to the mode that last allowed the caller to impersonate. That mode is
	// tried first, so that callers of the older mode do not pay for the new ones. If two callers have the same hash,
	// only the order differs.
	last *lru.Cache[uint64, int]
	seed maphash.Seed
}

// rememberedCallers is the size of last.
const rememberedCallers = 4096

func newImpersonationModes(a authorizer.UnconditionalAuthorizer) *impersonationModes {
	last, err := lru.New[uint64, int](rememberedCallers)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &impersonationModes{authorizer: a, modes: allImpersonationModes(), last: last, seed: maphash.MakeSeed()}
}

// grant returns the identity for the rest of the request and the constraint that allowed it. If it fails, it returns
// the refusal of the first mode that fits, because that is the right to request from an administrator.
func (i *impersonationModes) grant(ctx context.Context, wanted *user.DefaultInfo, asked *authorizer.AttributesRecord) (user.Info, string, error) {
	caller := maphash.String(i.seed, asked.User.GetName())
	var refusal error
	first := len(i.modes) // index of the mode that returned refusal
	for _, n := range i.order(caller) {
		m := &i.modes[n]
		if m.fits != nil && !m.fits(wanted, asked.User) {
			continue
		}
		err := i.check(ctx, m, wanted, asked)
		if err == nil {
			i.last.Add(caller, n)
			return m.identity(wanted), m.constraint(), nil
		}
		if n < first {
			refusal, first = err, n
		}
	}
	if refusal == nil {
		refusal = apierrors.NewInternalError(errors.New("no mode of impersonation was asked"))
	}
	return nil, "", refusal
}

// order returns the modes in the order in which they are tried for a caller.
func (i *impersonationModes) order(caller uint64) []int {
	order := make([]int, 0, len(i.modes))
	before, known := i.last.Get(caller)
	if known {
		order = append(order, before)
	}
	for n := range i.modes {
		if !known || n != before {
			order = append(order, n)
		}
	}
	return order
}

func (i *impersonationModes) check(ctx context.Context, m *impersonationMode, wanted *user.DefaultInfo, asked *authorizer.AttributesRecord) error {
	caller := asked.User
	if m.name == associatedNode {
		caller = onItsNode(caller)
	}
	if m.constrained() {
		on := *asked
		on.User, on.Verb = caller, "impersonate-on:"+m.name+":"+asked.Verb
		if err := i.authorize(ctx, &on); err != nil {
			return err
		}
	}
	questions := impersonationQuestions{mode: m, caller: caller}
	if err := i.authorize(ctx, questions.name(wanted)); err != nil {
		return err
	}
	if wanted.UID != "" {
		if err := i.authorize(ctx, questions.about(authenticationGroup, "uids", "", wanted.UID)); err != nil {
			return err
		}
	}
	if err := i.checkGroups(ctx, questions, wanted.Groups); err != nil {
		return err
	}
	return i.checkExtra(ctx, questions, wanted.Extra)
}

// manyQuestions is the number of values from which one check for "*" precedes the check of each value.
const manyQuestions = 4

func (i *impersonationModes) checkGroups(ctx context.Context, q impersonationQuestions, groups []string) error {
	if q.mode.constrained() {
		if err := q.checkGroups(groups); err != nil {
			return err
		}
		if len(groups) >= manyQuestions && i.authorize(ctx, q.group("*")) == nil {
			return nil
		}
	}
	for _, g := range groups {
		if err := i.authorize(ctx, q.group(g)); err != nil {
			return err
		}
	}
	return nil
}

func (i *impersonationModes) checkExtra(ctx context.Context, q impersonationQuestions, extra map[string][]string) error {
	if q.mode.constrained() {
		if err := q.checkExtra(extra); err != nil {
			return err
		}
		values := 0
		for _, v := range extra {
			values += len(v)
		}
		if values >= manyQuestions && i.authorize(ctx, q.about(authenticationGroup, "userextras", "*", "*")) == nil {
			return nil
		}
	}
	for key, values := range extra {
		for _, v := range values {
			if err := i.authorize(ctx, q.about(authenticationGroup, "userextras", key, v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *impersonationModes) authorize(ctx context.Context, question *authorizer.AttributesRecord) error {
	decision, reason, err := i.authorizer.Authorize(ctx, question)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		reason = strings.TrimSuffix(err.Error()+": "+reason, ": ")
	}
	return Forbidden(question, reason)
}

// identity returns the user for the rest of the request, with the groups that this kind of user always has.
func (m *impersonationMode) identity(wanted *user.DefaultInfo) user.Info {
	u := &user.DefaultInfo{Name: wanted.Name, UID: wanted.UID, Groups: slices.Clone(wanted.Groups), Extra: wanted.Extra}
	if _, node := nodeName(u.Name); node && m.constrained() {
		u.Groups = []string{user.NodesGroup}
	}
	if namespace, _, err := serviceaccount.SplitUsername(u.Name); err == nil && len(u.Groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	base := user.AllAuthenticated
	if u.Name == user.Anonymous || slices.Contains(u.Groups, user.AllUnauthenticated) {
		base = user.AllUnauthenticated
	}
	if !slices.Contains(u.Groups, base) {
		u.Groups = append(u.Groups, base)
	}
	return u
}

// onItsNode returns caller with extra that is the same on every node.
func onItsNode(caller user.Info) user.Info {
	keys := make([]string, 0, len(caller.GetExtra()))
	for key := range caller.GetExtra() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return &user.DefaultInfo{
		Name: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(),
		Extra: map[string][]string{associatedKeys: keys},
	}
}

const authenticationGroup = "authentication.k8s.io"

// impersonationQuestions builds upstream's authorizer attributes for the parts of an identity.
type impersonationQuestions struct {
	mode   *impersonationMode
	caller user.Info
}

func (q impersonationQuestions) about(group, resource, subresource, name string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: q.caller, Verb: q.mode.verb(), ResourceRequest: true,
		APIGroup: group, APIVersion: "v1", Resource: resource, Subresource: subresource, Name: name,
	}
}

// namesGroup returns the API group of users, groups and service accounts. The older mode uses the core group.
func (q impersonationQuestions) namesGroup() string {
	if q.mode.constrained() {
		return authenticationGroup
	}
	return ""
}

func (q impersonationQuestions) group(name string) *authorizer.AttributesRecord {
	return q.about(q.namesGroup(), "groups", "", name)
}

func (q impersonationQuestions) name(wanted *user.DefaultInfo) *authorizer.AttributesRecord {
	if namespace, name, err := serviceaccount.SplitUsername(wanted.Name); err == nil {
		question := q.about(q.namesGroup(), "serviceaccounts", "", name)
		question.Namespace = namespace
		return question
	}
	if node, ok := nodeName(wanted.Name); ok && q.mode.constrained() {
		if q.mode.name == associatedNode {
			node = "*" // any node; fits has checked that it is the caller's node
		}
		return q.about(authenticationGroup, "nodes", "", node)
	}
	return q.about(q.namesGroup(), "users", "", wanted.Name)
}

// checkGroups refuses groups that no rule can allow in a constrained mode.
func (q impersonationQuestions) checkGroups(groups []string) error {
	switch {
	case slices.Contains(groups, ""):
		return Forbidden(q.group(""), "impersonating the empty string group is not allowed")
	case slices.Contains(groups, user.SystemPrivilegedGroup):
		return Forbidden(q.group(user.SystemPrivilegedGroup), "impersonating the system:masters group is not allowed")
	}
	return nil
}

// checkExtra refuses ambiguous extra.
func (q impersonationQuestions) checkExtra(extra map[string][]string) error {
	for key, values := range extra {
		var reason string
		switch err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); {
		case err != nil:
			reason = fmt.Sprintf("impersonating an invalid key in extra is not allowed: %v", err)
		case key != strings.ToLower(key):
			reason = fmt.Sprintf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		case slices.Contains(values, ""):
			reason = "impersonating the empty string value in extra is not allowed"
		default:
			continue
		}
		return Forbidden(q.about(authenticationGroup, "userextras", "", ""), reason)
	}
	return nil
}
