package rbac

import (
	"math/bits"
	"slices"
	"strings"
)

// scope holds the grants of a subject, either cluster-wide or in one namespace.
type scope struct {
	grants []*grant
	rest   *scopeExtra // nil if at most one role is bound and it exists
}

// scopeExtra holds the fields that few scopes need.
type scopeExtra struct {
	// merged contains all grants in one table. It is set if there are many, so that a decision about a group with
	// many bindings costs the same as for others.
	merged *table
	// mentions has, for each target, a bit for each grant with a rule for it. It is set if there are a few grants.
	mentions map[targetID]uint16
	// missing lists bound roles that do not exist.
	missing []error
}

// manyGrants is the number of grants from which a merged table is faster than checking each grant. Smaller sets use
// scopeExtra.mentions.
const manyGrants = 16

// more returns the scopeExtra, creating it if needed. It is called only while the scope is built.
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
	slices.SortFunc(sc.grants, func(a, b *grant) int { return strings.Compare(a.source.name, b.source.name) })
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

// allowing returns the first grant that allows q, or nil.
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
