package filters

import (
	"regexp"
	"strings"
	"testing"
)

func TestAuditIDsAreDistinctUUIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 10_000 {
		id := newAuditID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("newAuditID() = %q, want a new UUID of version 4", id)
		}
		seen[id] = true
	}
}

func TestClientAuditIDIsTruncatedOrDropped(t *testing.T) {
	long := strings.Repeat("x", 64)
	for id, want := range map[string]string{
		"":                      "",
		"mine":                  "mine",
		"trace:7f/1 (retry 2)":  "trace:7f/1 (retry 2)",
		"заказ":                 "заказ",
		long:                    long,
		long + "y":              long,
		long[:63] + "ж":         long[:63], // cut before the character, not within it
		long[:63] + " and more": long[:63],
		"two\nlines":            "",
		"\x1b[31mred":           "",
		"\xff":                  "",
	} {
		if got := CallersAuditID(id); got != want {
			t.Errorf("CallersAuditID(%q) = %q, want %q", id, got, want)
		}
	}
}
