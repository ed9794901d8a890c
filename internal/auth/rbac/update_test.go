package rbac

import (
	"maps"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"pgregory.net/rapid"
)

// An updated index equals a new index of the final objects.
func TestUpdatedIndexEqualsNewIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector")
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		roles := Policy{ClusterRoles: p.ClusterRoles, Roles: p.Roles}
		held := make(map[bindingID]*Binding)
		x := newIndex(roles)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			drawn := drawPolicy(t)
			there := drawn.bindings()
			changes := make(map[bindingID]change)
			for _, b := range there {
				changes[b.id()] = change{now: b}
			}
			for id, b := range held {
				switch c, changed := changes[id]; {
				case changed:
					c.seen = []*Binding{b}
					if rapid.Bool().Draw(t, "told twice") {
						c.seen = append(c.seen, c.now)
					}
					changes[id] = c
				case rapid.Bool().Draw(t, "deleted"):
					changes[id] = change{seen: []*Binding{b}}
				}
			}
			before := answers(t, x)
			next := x.update(changes)
			if after := answers(t, x); !slices.Equal(before, after) {
				t.Fatalf("decisions of the index after its update = %q, want them unchanged: %q", after, before)
			}
			x = next
			for id, c := range changes {
				if held[id] = c.now; c.now == nil {
					delete(held, id)
				}
			}
			roles.Bindings = slices.Collect(maps.Values(held))
			fresh := newIndex(roles)
			if got, want := keys(&x.users), keys(&fresh.users); !slices.Equal(got, want) {
				t.Fatalf("users of the index = %q, want %q", got, want)
			}
			if got, want := keys(&x.groups), keys(&fresh.groups); !slices.Equal(got, want) {
				t.Fatalf("groups of the index = %q, want %q", got, want)
			}
			if got, want := answers(t, x), answers(t, fresh); !slices.Equal(got, want) {
				t.Fatalf("decisions of the index = %q, want %q", got, want)
			}
		}
	})
}

func keys(s *subjectMap) (all []string) {
	for _, shard := range s {
		all = slices.AppendSeq(all, maps.Keys(shard))
	}
	slices.Sort(all)
	return all
}

// answers returns the reasons of all decisions for a few users.
func answers(t *rapid.T, x *index) (all []string) {
	r := loaded(Policy{})
	r.current.Store(x)
	for _, who := range someUsers {
		for _, namespace := range []string{"", "n1", "n2"} {
			for _, resource := range someResources {
				a := on("get", "apps", resource, in(namespace))
				a.User = person(who, someTeams...)
				_, reason, err := r.Authorize(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, reason)
			}
		}
	}
	return all
}

// BenchmarkUpdateBinding measures a change of one of 10,000 bindings.
func BenchmarkUpdateBinding(b *testing.B) {
	p := large()
	x := newIndex(p)
	before := trimBinding(&p.RoleBindings[4000].ObjectMeta, p.RoleBindings[4000].RoleRef, p.RoleBindings[4000].Subjects)
	after := trimBinding(&p.RoleBindings[4000].ObjectMeta, p.RoleBindings[4000].RoleRef, []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "somebody"}})
	b.ReportAllocs()
	for b.Loop() {
		x = x.update(map[bindingID]change{before.id(): {seen: []*Binding{before}, now: after}})
		before, after = after, before
	}
}
