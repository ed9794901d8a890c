package fleet

import (
	"net/http"
	"testing"
)

// A request of the front door itself has a user, which is the account of the front door unless the request names another one.
func TestCredentialsOfAFrontProxy(t *testing.T) {
	for _, c := range []struct {
		frontProxy  bool
		given, want string
	}{
		{false, "", ""},
		{true, "", "system:serviceaccount:portico-system:portico-front"},
		{true, "portico-front-check", "portico-front-check"},
	} {
		credentials := &credentials{frontProxy: c.frontProxy}
		credentials.UseCertificate(nil)
		header := http.Header{}
		if c.given != "" {
			header.Set("X-Remote-User", c.given)
		}
		if err := credentials.Apply(t.Context(), header); err != nil {
			t.Fatalf("Apply failed: %v, want no error", err)
		}
		if got := header.Get("X-Remote-User"); got != c.want {
			t.Errorf("front proxy %t: the user of a request of user %q is %q, want %q", c.frontProxy, c.given, got, c.want)
		}
	}
}
