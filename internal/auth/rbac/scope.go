package rbac

import (
	"math/bits"
	"slices"
	"strings"
)

// scope is what is bound to a subject cluster-wide or in one namespace.
type scope struct {
	grants []*grant
	rest   *scopeExtra // nil: one role is bound, and it exists
}

// scopeExtra is what few scopes have.
type scopeExtra struct {
	// merged is all of the grants in one table. It exists where there are many, so that a group with many bindings
	// costs no more than another one.
	merged *table
	// mentions has, for each target, a bit for each grant whose role speaks of it. It exists where there are a few grants.
	mentions map[targetID]uint16
	// missing are the roles that are bound and do not exist.
	missing []error
}

// manyGrants is from where a table of all grants is faster than each of them in turn. Fewer have a bit each in
// scopeExtra.mentions.
const manyGrants = 16

// more is the scopeExtra of a scope that is being made.
func (sc *scope) more() *scopeExtra {
	if sc.rest == nil {
		sc.rest = &scopeExtra{}
	}
	return sc.rest
}

func (sc *scope) prepare(known targets) {
	if sc == nil {
		return
	}
	if sc.rest != nil {
		slices.SortFunc(sc.rest.missing, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	}
	slices.SortFunc(sc.grants, func(a, b *grant) int { return strings.Compare(a.by.name, b.by.name) })
	switch {
	case len(sc.grants) < 2:
	case len(sc.grants) < manyGrants:
		mentions := make(map[targetID]uint16)
		for i, g := range sc.grants {
			for id := range g.role.table.resources {
				mentions[id] |= 1 << i
			}
		}
		sc.more().mentions = mentions
	default:
		merged := &table{}
		for _, g := range sc.grants {
			merged.add(g.role.rules, g, known)
		}
		sc.more().merged = merged
	}
}

// allowing is the first grant that allows q, nil when none does.
func (sc *scope) allowing(q *question) *grant {
	if sc == nil {
		return nil
	}
	if sc.rest != nil && sc.rest.merged != nil {
		return sc.rest.merged.allowing(q)
	}
	if sc.rest == nil || sc.rest.mentions == nil || !q.resource {
		for _, g := range sc.grants {
			if g.role.table.allowing(q) != nil {
				return g
			}
		}
		return nil
	}
	var among uint16
	for _, id := range q.targets[:q.n] {
		among |= sc.rest.mentions[id]
	}
	for ; among != 0; among &= among - 1 {
		if g := sc.grants[bits.TrailingZeros16(among)]; g.role.table.allowing(q) != nil {
			return g
		}
	}
	return nil
}
