package rbac

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// large is 10,000 bindings of 2,000 roles, to users, to groups, and a thousand of them to the group of everybody.
func large() Policy {
	var p Policy
	for i := range 2000 {
		p.ClusterRoles = append(p.ClusterRoles, clusterRole(fmt.Sprintf("role-%d", i),
			may(read...).on(fmt.Sprintf("group-%d", i%50), fmt.Sprintf("things-%d", i), fmt.Sprintf("things-%d/status", i)),
			may(write...).on("", fmt.Sprintf("others-%d", i)),
			may("get").on("", "configmaps").named(fmt.Sprintf("map-%d", i))))
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

func BenchmarkAuthorize(b *testing.B) {
	r := loaded(large())
	who := person("user-7", "team-1", "team-2", "team-3", "system:authenticated")
	for name, what := range map[string]authorizer.AttributesRecord{
		"refused":               on("get", "", "secrets", in("ns-1"), named("x")),
		"allowed to everybody":  on("get", "group-48", "things-998"),
		"refused url":           url("get", "/nowhere"),
		"a name among thousand": on("get", "", "configmaps", in("ns-1"), named("map-998")),
	} {
		what.User = who
		b.Run(name, func(b *testing.B) {
			var asked authorizer.Attributes = what
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

func BenchmarkLoad(b *testing.B) {
	p := large()
	b.ReportAllocs()
	for b.Loop() {
		newIndex(p)
	}
}
