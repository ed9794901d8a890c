package request

import (
	"context"
	"testing"
)

func TestClientNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:443":           "192.0.2.7",
		"[::ffff:192.0.2.7]:443":  "192.0.2.7",
		"[2001:db8::1:2:3:4]:443": "2001:db8::/64",
		"[fe80::1%eth0]:443":      "fe80::/64",
		"@":                       "@",
		"":                        "",
	} {
		ctx := context.WithValue(&Context{Context: t.Context(), RemoteAddr: remote}, auditIDKey{}, "id")
		if got := ClientNetwork(ctx); got != want {
			t.Errorf("ClientNetwork of %q = %q, want %q", remote, got, want)
		}
	}
	if got := ClientNetwork(t.Context()); got != "" {
		t.Errorf("ClientNetwork outside a request = %q, want none", got)
	}
}
