package environment

import (
	"crypto/tls"
	"encoding/json"
	"net/http/httptest"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// One process is the backend of all groups. Both sides must find their groups, or one side stores fewer documents.
func TestEachServiceHasItsGroup(t *testing.T) {
	for name, c := range map[string]struct{ host, serverName string }{
		"the header names the Service":                    {"bench-00007.bench.svc:443", "bench-00007.bench.svc"},
		"the header names where an ExternalName leads to": {"localhost:4711", "bench-00007.bench.svc"},
		"the connection names nobody, as one by address":  {"bench-00007.bench.svc", ""},
	} {
		r := httptest.NewRequest("GET", "/apis", nil)
		r.Host, r.TLS = c.host, &tls.ConnectionState{ServerName: c.serverName}
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w := httptest.NewRecorder()
		newBackend().ServeHTTP(w, r)
		var got apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Items) != 1 || got.Items[0].Name != GroupName(7) {
			t.Errorf("%s: discovery = %v, %s; want one group", name, err, w.Body)
		}
	}
}
