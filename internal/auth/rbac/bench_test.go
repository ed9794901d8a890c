package rbac

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// large has 10,000 bindings of 2,000 roles, to users and groups. A thousand of them are to the group system:authenticated.
func large() Policy {
	var p Policy
	for i := range 2000 {
		var maps []string
		for j := range 200 {
			maps = append(maps, fmt.Sprintf("map-%d-%d", i, j))
		}
		p.ClusterRoles = append(p.ClusterRoles, clusterRole(fmt.Sprintf("role-%d", i),
			may(read...).inGroup(fmt.Sprintf("group-%d", i%50), fmt.Sprintf("things-%d", i), fmt.Sprintf("things-%d/status", i)),
			may(write...).inGroup("", fmt.Sprintf("others-%d", i)),
			may("get").inGroup("", "configmaps").named(maps...)))
	}
	add := func(i int, to rbacv1.Subject) {
		role := fmt.Sprintf("role-%d", i%2000)
		if i%2 == 0 {
			p.ClusterRoleBindings = append(p.ClusterRoleBindings, clusterBinding(fmt.Sprintf("c-%d", i), role, to))
		} else {
			p.RoleBindings = append(p.RoleBindings, binding(fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("b-%d", i), "ClusterRole", role, to))
		}
	}
	for i := range 1000 {
		add(i, rbacv1.Subject{Kind: "Group", Name: "system:authenticated"})
	}
	for i := 1000; i < 5500; i++ {
		add(i, rbacv1.Subject{Kind: "Group", Name: fmt.Sprintf("team-%d", i%300)})
	}
	for i := 5500; i < 10_000; i++ {
		add(i, rbacv1.Subject{Kind: "User", Name: fmt.Sprintf("user-%d", i%1500)})
	}
	return p
}

// decision is a request for the large policy.
type decision struct {
	name    string
	what    authorizer.AttributesRecord
	allowed bool
}

func decisions() []decision {
	some := person("user-7", "team-1", "team-2", "team-3", "system:authenticated")
	manyGroups := []string{}
	for i := range 49 {
		manyGroups = append(manyGroups, fmt.Sprintf("team-%d", i*6))
	}
	many := person("user-8", append(manyGroups, "system:authenticated")...)
	by := func(a authorizer.AttributesRecord, who *authorizer.AttributesRecord) authorizer.AttributesRecord {
		a.User = who.User
		return a
	}
	few, fifty := &authorizer.AttributesRecord{User: some}, &authorizer.AttributesRecord{User: many}
	return []decision{
		{"allowed cluster-wide", by(on("get", "group-48", "things-998", in("ns-5")), few), true},
		{"allowed in a namespace", by(on("delete", "", "others-1507", in("ns-7")), few), true},
		{"allowed by one of 200 names", by(on("get", "", "configmaps", in("ns-1"), named("map-998-150")), few), true},
		{"denied", by(on("get", "", "secrets", in("ns-1"), named("x")), few), false},
		{"denied, a name that no rule has", by(on("get", "", "configmaps", in("ns-1"), named("map-9999-1")), few), false},
		{"denied, a path", by(url("get", "/nowhere"), few), false},
		{"50 groups, allowed by the last", by(on("get", "group-48", "things-998", in("ns-5")), fifty), true},
		{"50 groups, denied", by(on("get", "", "secrets", in("ns-1"), named("x")), fifty), false},
	}
}

// A decision should take less than 5 µs if the rules allow the request, less than 50 µs if all rules are evaluated,
// and no allocation in either case (issue 7).
func BenchmarkAuthorize(b *testing.B) {
	r := loaded(large())
	for _, d := range decisions() {
		b.Run(d.name, func(b *testing.B) {
			var asked authorizer.Attributes = d.what
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.Authorize(ctx, asked); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestDecisionDoesNotAllocate(t *testing.T) {
	r := loaded(large())
	for _, d := range decisions() {
		var asked authorizer.Attributes = d.what
		ctx := t.Context()
		if got, reason, err := r.Authorize(ctx, asked); err != nil || (got == authorizer.DecisionAllow) != d.allowed {
			t.Errorf("Authorize(%s) = %v, %q, %v, want allowed = %t", d.name, got, reason, err, d.allowed)
		}
		if n := testing.AllocsPerRun(100, func() { _, _, _ = r.Authorize(ctx, asked) }); n != 0 {
			t.Errorf("allocations of Authorize(%s) = %v, want 0", d.name, n)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	p := large()
	p.Bindings, p.ClusterRoleBindings, p.RoleBindings = p.bindings(), nil, nil // the form in informers
	b.ReportAllocs()
	for b.Loop() {
		newIndex(p)
	}
}
