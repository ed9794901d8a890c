package metricsapi

import "strings"

// maxName is the length of a DNS label, which names and label values keep to.
const maxName = 63

// dnsName spells a unit or command so that it may name a pod: user@1000.service is user-1000.service.
func dnsName(name string) string {
	var labels []string
	for _, part := range strings.Split(name, ".") {
		if part = dnsLabel(part); part != unnamed {
			labels = append(labels, part)
		}
	}
	return orUnnamed(trim(strings.Join(labels, ".")))
}

// unnamed is what has no letter or digit in its name.
const unnamed = "unnamed"

// dnsLabel spells a name so that it may name a container.
func dnsLabel(name string) string {
	return orUnnamed(trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return '-'
	}, name)))
}

// labelValue spells a name so that it may be the value of a label, in which case, _ and . are kept.
func labelValue(name string) string {
	return strings.Trim(cut(strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.':
			return c
		}
		return '-'
	}, name)), "-_.")
}

func trim(s string) string { return strings.Trim(cut(strings.Trim(s, "-.")), "-.") }

func cut(s string) string { return s[:min(len(s), maxName)] }

func orUnnamed(s string) string {
	if s == "" {
		return unnamed
	}
	return s
}
