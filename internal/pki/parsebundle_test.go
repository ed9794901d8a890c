package pki

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseBundleRejectsDamagedBlocks(t *testing.T) {
	a, err := NewAuthority("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewAuthority("b")
	if err != nil {
		t.Fatal(err)
	}
	one, two := a.PEM(), b.PEM()
	both := append(bytes.Clone(one), two...)
	damaged := bytes.Replace(one, []byte("\nM"), []byte("\n!"), 1)
	for _, c := range []struct {
		name   string
		bundle []byte
		want   int    // certificates
		says   string // empty: accepted
	}{
		{"two certificates", both, 2, ""},
		{"text between certificates", []byte("# a\n" + string(one) + "\n# b\n" + string(two)), 2, ""},
		{"the last certificate is truncated", both[:len(both)-10], 0, "cannot be decoded"},
		{"the first certificate is damaged", append(damaged, two...), 0, "cannot be decoded"},
		{"only a truncated certificate", one[:len(one)-10], 0, "cannot be decoded"},
		{"only text", []byte("no certificate"), 0, "no PEM certificate"},
		{"a key", []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0, "PRIVATE KEY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			certs, err := ParseBundle(c.bundle)
			if c.says == "" && err != nil {
				t.Fatalf("ParseBundle error = %v, want none", err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("ParseBundle error = %v, want one that contains %q", err, c.says)
			}
			if len(certs) != c.want {
				t.Errorf("ParseBundle returned %d certificates, want %d", len(certs), c.want)
			}
		})
	}
}
