package routing

import (
	"slices"
	"strings"
)

// matchPattern reports whether a name matches a pattern, in which * stands for any characters and ? for a single one.
func matchPattern(pattern, name string) bool { return match(pattern, name, false) }

// coversPattern reports whether every name that matches the pattern narrow matches wide. It may return false although
// all do.
func coversPattern(wide, narrow string) bool { return match(wide, narrow, true) }

// match matches a literal name. With isPattern, the name is a pattern too, and only a * in pattern matches its *.
// match backtracks only to the last *, so that the product of the lengths bounds its time.
func match(pattern, name string, isPattern bool) bool {
	p, n, star, resume := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, n
			p++
		case p < len(pattern) && (pattern[p] == name[n] || pattern[p] == '?' && (!isPattern || name[n] != '*')):
			p++
			n++
		case star >= 0:
			resume++
			p, n = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchPattern(p, name) })
}
