package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAuthMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := NewAuth(reg)
	for _, name := range []string{"admin", "ann", "bob", "ann@example.com", "system:serviceaccount:a:b"} {
		a.User(name)
	}
	a.Attempt("success", time.Millisecond)
	a.Attempt("error", time.Millisecond)
	a.ConfigReloaded(false)
	a.KeysFetched("https://a.example", true)
	a.KeysFetched("https://gone.example", false)
	a.ForgetIssuer("https://gone.example")
	var problem error
	a.Trust("client-ca-file", func() error { return problem })
	problem = errors.New("it does not parse")
	const want = `
# HELP apiserver_authentication_config_controller_automatic_reloads_total Reloads of the authentication configuration, by status.
# TYPE apiserver_authentication_config_controller_automatic_reloads_total counter
apiserver_authentication_config_controller_automatic_reloads_total{status="failure"} 1
# HELP authenticated_user_requests Authenticated requests by class of user name.
# TYPE authenticated_user_requests counter
authenticated_user_requests{username="admin"} 1
authenticated_user_requests{username="email_id"} 1
authenticated_user_requests{username="other"} 3
# HELP authentication_attempts Requests by what authentication made of them: success, failure or error.
# TYPE authentication_attempts counter
authentication_attempts{result="error"} 1
authentication_attempts{result="success"} 1
# HELP portico_oidc_key_fetches_total Times that an issuer was asked for its keys, by issuer and result.
# TYPE portico_oidc_key_fetches_total counter
portico_oidc_key_fetches_total{issuer="https://a.example",result="success"} 1
# HELP portico_trust_stale 1 for each file of trust whose last good version is in force because the present one cannot be used.
# TYPE portico_trust_stale gauge
portico_trust_stale{file="client-ca-file"} 1
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want), "apiserver_authentication_config_controller_automatic_reloads_total",
		"authenticated_user_requests", "authentication_attempts", "portico_oidc_key_fetches_total", "portico_trust_stale")
	if err != nil {
		t.Error(err)
	}
}
