package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// oneReplica sends every request to one backend.
type oneReplica struct{ backend *transport.Backend }

func (o oneReplica) Backend([]string) (*transport.Backend, error) { return o.backend, nil }
func (oneReplica) Serving(schema.GroupVersion) []string           { return nil }
func (oneReplica) State(r *http.Request, u user.Info) (string, error) {
	return r.Method + " of " + u.GetName(), nil
}
func (oneReplica) Verify(*http.Request) (statement *peers.Statement, _ error) {
	return nil, peers.ErrNoPeer
}

// Responses of the local groups while etcd is being lost.
func TestLocalRequestIsForwardedWhenEtcdIsLost(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	elsewhere := dispatchtest.Backend(t, set, "elsewhere", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "elsewhere: "+r.Header.Get(peers.Header)+" "+string(body))
	}))
	const maps = "/api/v1/namespaces/default/configmaps"
	for name, c := range map[string]struct {
		method, target string
		before, later  bool // whether another replica with etcd is known when the request begins, and after the local response
		here           int  // the status code of the local groups
		code           int
		body           string
	}{
		"nothing is lost":                      {"GET", maps, false, false, 200, 200, "here 200"},
		"nothing is lost, and it fails":        {"GET", maps, false, false, 503, 503, "here 503"},
		"a read, lost before":                  {"GET", maps, true, true, 503, 200, "elsewhere: GET of alice"},
		"a write, lost before":                 {"POST", maps, true, true, 503, 200, "elsewhere: POST of alice body"},
		"a watch, lost before":                 {"GET", maps + "?watch=true", true, true, 200, 200, "elsewhere: GET of alice"},
		"a read, lost meanwhile":               {"GET", maps, false, true, 503, 200, "elsewhere: GET of alice"},
		"a read, lost meanwhile, that is made": {"GET", maps, false, true, 200, 200, "here 200"},
		"a read, lost meanwhile, not there":    {"GET", maps, false, true, 404, 404, "here 404"},
		"a write, lost meanwhile":              {"POST", maps, false, true, 504, 504, "here 504"},
		"a write that was refused meanwhile":   {"POST", maps, false, true, 503, 503, "here 503"},
		"a watch, lost meanwhile":              {"GET", maps + "?watch=true", false, true, 503, 503, "here 503"},
		"a review":                             {"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", true, true, 201, 201, "here 201"},
		"the document of a group-version":      {"GET", "/api/v1", true, true, 200, 200, "here 200"},
	} {
		t.Run(name, func(t *testing.T) {
			known := c.before
			local := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				known = c.later
				w.Header().Set("Content-Length", "999")
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(c.here)
				_ = http.NewResponseController(w).Flush()
				_, _ = fmt.Fprintf(w, "here %d", c.here)
			})
			router := routerOf(routetable.NewTable(nil, true))
			router.LocalGroupVersions = func() sets.Set[schema.GroupVersion] {
				return sets.New(schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"})
			}
			router.Local, router.Replicas, router.PeerMetrics = local, oneReplica{elsewhere}, metrics.NewPeers(prometheus.NewRegistry())
			router.WithEtcd = func() []string {
				if known {
					return []string{"b"}
				}
				return nil
			}
			h := NewInternalChain(&user.DefaultInfo{Name: "alice"}, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), router.build())
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, c.target, strings.NewReader("body")))
			if w.Code != c.code || !strings.HasPrefix(w.Body.String(), c.body) {
				t.Errorf("%s %s = %d %s, want %d %s", c.method, c.target, w.Code, w.Body, c.code, c.body)
			}
			if fromHere := strings.HasPrefix(c.body, "here"); (w.Header().Get("Retry-After") != "") != fromHere || (w.Header().Get("Content-Length") == "999") != fromHere {
				t.Errorf("header of %s %s = %v, want Retry-After and Content-Length only for a local response (%t)", c.method, c.target, w.Header(), fromHere)
			}
		})
	}
}
