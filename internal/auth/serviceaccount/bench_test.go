package serviceaccount

import "testing"

// BenchmarkAuthenticateToken measures a service account token with an ECDSA signature, whose account is looked up.
func BenchmarkAuthenticateToken(b *testing.B) {
	tokens := newTokens(b)
	issued, err := tokens.Issue(b.Context(), IssueRequest{Namespace: "ns", Name: "robot"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := tokens.AuthenticateToken(b.Context(), issued.Token); !ok {
			b.Fatal(err)
		}
	}
}
