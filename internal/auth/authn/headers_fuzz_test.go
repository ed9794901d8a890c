package authn

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzIdentityHeaders checks that no header or trailer that a server could read as an identity is left after Strip, that other fields
// are kept, and that reading the headers of a front proxy does not panic and is bounded.
func FuzzIdentityHeaders(f *testing.F) {
	for _, seed := range [][2]string{
		{"X-Remote-User", "root"}, {"x_remote_user", "root"}, {"X-Remote-Extra-%41", "a"}, {"X_Remote-Extra_x", ""},
		{" X-Remote-Group\t", "system:masters"}, {"X.Remote!User", "root"}, {"X-Remote-User\x00", "root"}, {"x~remote|extra^a", ""}, {"X-Remote-Address", "10.0.0.1"}, {"X-Remote-Uid", "\x00"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		u, err := usual.identity(http.Header{"X-Remote-User": {"ann"}, name: {value}})
		if err == nil && u != nil && len(u.GetName())+len(strings.Join(u.GetGroups(), "")) > maxIdentityBytes {
			t.Fatalf("identity has %d groups, want at most %d bytes in total", len(u.GetGroups()), maxIdentityBytes)
		}
		r := &http.Request{Header: http.Header{name: {value}, "Accept": {"a"}}, Trailer: http.Header{name: {value}}}
		usual.Strip(r)
		if name != "Accept" && r.Header.Get("Accept") != "a" {
			t.Fatalf("Accept after Strip = %q, want a", r.Header.Get("Accept"))
		}
		for _, h := range []http.Header{r.Header, r.Trailer} {
			for left := range h {
				// Normalizes like the most lenient reader: any case, and one character for each byte that is neither a letter nor a digit.
				plain := strings.Map(func(r rune) rune {
					switch {
					case 'A' <= r && r <= 'Z':
						return r - 'A' + 'a'
					case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
						return r
					}
					return '-'
				}, left)
				if strings.HasPrefix(plain, "x-remote-extra-") || plain == "x-remote-user" || plain == "x-remote-group" || plain == "x-remote-uid" {
					t.Fatalf("field after Strip = %q, want no identity field", left)
				}
			}
		}
	})
}
