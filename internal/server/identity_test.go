package server

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"portico.dev/internal/proxy"
)

// Stock extension servers read the identity that package proxy writes. The test is here because their library links most of client-go.
func TestA11IdentityIsForwardedUnchanged(t *testing.T) {
	names := proxy.RequestHeaders
	stock, err := headerrequest.New([]string{names.User}, []string{names.UID}, []string{names.Group}, []string{names.ExtraPrefix})
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.StringMatching(`[!-~]([ -~]{0,10}[!-~])?`)
	rapid.Check(t, func(t *rapid.T) {
		u := &user.DefaultInfo{
			Name:   text.Draw(t, "name"),
			UID:    rapid.OneOf(rapid.Just(""), text).Draw(t, "uid"),
			Groups: rapid.SliceOfN(text, 1, 5).Draw(t, "groups"),
			Extra: rapid.MapOfN(rapid.OneOf(rapid.SampledFrom([]string{"A", "a", "x_y", "Scope/Key", "a%2fb", "%zz", "Ünï", "x\ny"}),
				rapid.StringN(1, 12, 24)), rapid.SliceOfN(text, 1, 3), 0, 6).Draw(t, "extra"),
		}
		h := http.Header{}
		if err := proxy.WriteIdentity(h, names, u); err != nil {
			t.Fatal(err)
		}
		// Header names change their case in transit: HTTP/2 lowers it, net/http canonicalises.
		wire := http.Header{}
		for name, values := range h {
			for _, v := range values {
				wire.Add(strings.ToLower(name), v)
			}
		}
		resp, ok, err := stock.AuthenticateRequest(&http.Request{Header: wire})
		if err != nil || !ok {
			t.Fatalf("AuthenticateRequest() = %t, error %v, want true and no error", ok, err)
		}
		got := resp.User
		if got.GetName() != u.Name || got.GetUID() != u.UID || !slices.Equal(got.GetGroups(), u.Groups) {
			t.Fatalf("user at the backend = %#v, want %#v", got, u)
		}
		if len(got.GetExtra()) != len(u.Extra) || len(u.Extra) > 0 && !reflect.DeepEqual(got.GetExtra(), u.Extra) {
			t.Fatalf("extra at the backend = %q, want %q", got.GetExtra(), u.Extra)
		}
	})
}
