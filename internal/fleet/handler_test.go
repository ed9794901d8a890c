package fleet

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
)

const own = "front.example.com"

func TestSelection(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a", "a.example.com")
		for name, tt := range map[string]struct {
			host, target string
			code         int
			served       string // target at the API server
		}{
			"path":                      {own, "/clusters/a/api/v1/pods", 200, "/api/v1/pods"},
			"path with a query":         {own, "/clusters/a/api/v1/pods?limit=5&x=%2F", 200, "/api/v1/pods?limit=5&x=%2F"},
			"path with escapes":         {own, "/clusters/a/apis/x/v1/things/a%3Ab", 200, "/apis/x/v1/things/a%3Ab"},
			"lower case escape":         {own, "/clusters/a/apis/x/v1/things/a%3ab", 200, "/apis/x/v1/things/a%3ab"},
			"only the cluster":          {own, "/clusters/a", 200, "/"},
			"only the cluster, slash":   {own, "/clusters/a/", 200, "/"},
			"only the cluster, query":   {own, "/clusters/a?x=y", 200, "/?x=y"},
			"clusters below the prefix": {own, "/clusters/a/clusters/b/api", 200, "/clusters/b/api"},
			"host":                      {"a.example.com", "/api/v1/pods?x=y", 200, "/api/v1/pods?x=y"},
			"host with a port":          {"a.example.com:6443", "/api/v1/pods", 200, "/api/v1/pods"},
			"host in upper case":        {"A.Example.COM", "/api/v1/pods", 200, "/api/v1/pods"},
			"host with a dot":           {"a.example.com.", "/api/v1/pods", 200, "/api/v1/pods"},
			"host with a dot and port":  {"A.example.com.:443", "/api/v1/pods", 200, "/api/v1/pods"},
			"path below a host":         {"a.example.com", "/clusters/b/api", 200, "/clusters/b/api"},
			"another host":              {"b.example.com", "/api/v1/pods", 200, ""},
			"no cluster":                {own, "/clusters", 200, ""},
			"no name":                   {own, "/clusters/", 200, ""},
			"empty name":                {own, "/clusters//api", 400, ""},
			"upper case":                {own, "/clusters/A/api", 200, ""},
			"name with a dot":           {own, "/clusters/a.b/api", 200, ""},
			"name with an underscore":   {own, "/clusters/a_b/api", 200, ""},
			"escaped name":              {own, "/clusters/%61/api", 400, ""},
			"escaped slash":             {own, "/clusters/a%2Fapi", 400, ""},
			"escaped prefix":            {own, "/%63lusters/a/api", 400, ""},
			"two slashes before":        {own, "//clusters/a/api", 400, ""},
			"two slashes after":         {own, "/clusters/a//api", 400, ""},
			"dot segments after":        {own, "/clusters/a/../b/api", 400, ""},
			"dot segments before":       {own, "/clusters/../clusters/a/api", 400, ""},
			"dot segment":               {own, "/clusters/./a/api", 400, ""},
			"escaped dot segments":      {own, "/clusters/a/%2e%2e/b/api", 400, ""},
			"semicolon":                 {own, "/clusters/a;b/api", 400, ""},
			"fragment":                  {own, "/clusters/a#/api", 400, ""},
			"absolute":                  {own, "https://a.example.com/api/v1/pods", 400, ""},
			"absolute with a path":      {own, "https://front.example.com/clusters/a/api", 400, ""},
		} {
			got := e.get(tt.host, tt.target, "alice")
			if got.code != tt.code {
				t.Errorf("%s: %s%s = %d %s, want %d", name, tt.host, tt.target, got.code, got.body, tt.code)
			}
			var at []string
			for _, r := range a.taken() {
				at = append(at, r.target)
			}
			if strings.Join(at, " ") != tt.served {
				t.Errorf("%s: the API server received %q, want %q", name, at, tt.served)
			}
			if local := got.code == 200 && tt.served == ""; local != strings.HasPrefix(got.body, "front door ") {
				t.Errorf("%s: answered %q", name, got.body)
			}
		}
		for line, want := range map[string]int{
			"CONNECT a.example.com:443 HTTP/1.1": 405, "CONNECT /clusters/a/api HTTP/1.1": 405, "TRACE /clusters/a/api HTTP/1.1": 405, "OPTIONS * HTTP/1.1": 400,
		} {
			// net/http itself answers "OPTIONS *".
			if got := e.raw(own, line, "Authorization: Bearer alice"); got.code != want && line != "OPTIONS * HTTP/1.1" {
				t.Errorf("%s = %d %s, want %d", line, got.code, got.body, want)
			}
			if n := len(a.taken()); n != 0 {
				t.Errorf("%s reached the API server %d times, want 0", line, n)
			}
		}
	})
}

func TestSelectionHTTP2(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a, b := e.start("a", "a.example.com"), e.start("b", "b.example.com")
		tr := e.http2()
		defer tr.CloseIdleConnections()
		do := func(host, path, field string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"User-Agent": {"client"}, "Authorization": {"Bearer alice"}}
			if field != "" {
				r.Host = field
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.ProtoMajor != 2 {
				t.Fatalf("%s = %s, want HTTP/2", path, resp.Proto)
			}
			return read(resp).code
		}
		for _, tt := range []struct {
			host, path, authority string
			a, b                  int
		}{
			{own, "/clusters/a/api/v1/pods", "", 1, 0}, {own, "/clusters/b/api/v1/pods", "", 0, 1},
			{own, "/api/v1/pods", "A.example.com:443", 1, 0}, {own, "/clusters/a/api/v1/pods", "b.example.com", 0, 1},
		} {
			if code := do(tt.host, tt.path, tt.authority); code != 200 {
				t.Errorf("%+v = %d, want 200", tt, code)
			}
			if at, bt := len(a.taken()), len(b.taken()); at != tt.a || bt != tt.b {
				t.Errorf("%+v: %d requests at a and %d at b, want %d and %d", tt, at, bt, tt.a, tt.b)
			}
		}
	})
}

// TestA61ClustersAreNotDisclosed checks that only users who may use a cluster learn that it does not exist.
func TestA61ClustersAreNotDisclosed(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("a")
		e.allowRights("alice list a", "alice list b")
		for _, tt := range []struct {
			token, cluster string
			code           int
		}{
			{"wrong", "a", 401}, {"wrong", "b", 401}, {"bob", "a", 403}, {"bob", "b", 403}, {"alice", "a", 200}, {"alice", "b", 404}, {"alice", "c", 403},
		} {
			got := e.get(own, "/clusters/"+tt.cluster+"/api/v1/pods", tt.token)
			if got.code != tt.code {
				t.Errorf("%s at %s = %d %s, want %d", tt.token, tt.cluster, got.code, got.body, tt.code)
			}
		}
		without := func(cluster string) string {
			return strings.ReplaceAll(e.get(own, "/clusters/"+cluster+"/api/v1/pods", "bob").body, `\"`+cluster+`\"`, "X")
		}
		if a, b := without("a"), without("b"); a != b {
			t.Errorf("403 for a cluster = %s, for none = %s; want the same", a, b)
		}
	})
}

func TestRedirectsGetThePrefix(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a", "a.example.com")
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", r.Header.Get("X-To"))
			w.WriteHeader(http.StatusFound)
		})
		a.handle.Store(&h)
		for _, tt := range []struct {
			host, target, to, want string
			code                   int
		}{
			{own, "/clusters/a/ui", "/ui/", "/clusters/a/ui/", 302}, {"a.example.com", "/ui", "/ui/", "/ui/", 302},
			{own, "/clusters/a/ui", "/../../b/api", "/clusters/a/b/api", 302}, {own, "/clusters/a/ui", "//evil.example.com/", "", 502},
			{own, "/clusters/a/ui", "https://evil.example.com/", "", 502},
		} {
			got := e.get(tt.host, tt.target, "alice", "X-To: "+tt.to)
			if location := got.header.Get("Location"); got.code != tt.code || location != tt.want {
				t.Errorf("redirect to %s = %d %q, want %d %q", tt.to, got.code, location, tt.code, tt.want)
			}
		}
	})
}

// A client looks up the UIDs of flow control in the API that it has requested.
func TestFlowControlHeadersAreThoseOfTheCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		mark := func(w http.ResponseWriter, by string) {
			for _, name := range flowHeaders {
				w.Header().Set(name, by)
			}
		}
		handle := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { mark(w, "cluster") })
		e.start("a").handle.Store(&handle)
		e.listen(frontAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mark(w, "front door")
			e.handler.ServeHTTP(w, r)
		}), e.pair(e.ca, pki.Leaf{CommonName: "front", DNSNames: []string{own}, Server: true}))
		for target, want := range map[string]string{"/clusters/a/api/v1/pods": "cluster", "/clusters/b/api/v1/pods": "front door", "/api/v1/pods": "front door"} {
			got := e.get(own, target, "alice")
			for _, name := range flowHeaders {
				if values := got.header[name]; !slices.Equal(values, []string{want}) {
					t.Errorf("GET %s: %s = %q, want %q", target, name, values, want)
				}
			}
		}
	})
}

// TestLoopOfClustersIsRefused checks that a request ends that comes back: two Clusters have the front door as their API server, each with
// the host name of the other one.
func TestLoopOfClustersIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		next := map[string]string{"a": "b", "b": "a"}
		for name := range next {
			e.start(name, name+".example.com")
			e.secrets.Modify(secret(name, map[string]string{"token": "front"}))
		}
		for name, next := range next {
			e.change(name, func(s *v1alpha1.ClusterSpec) {
				s.Server.Endpoints, s.Server.ServerName = []string{frontAddress}, next+".example.com"
			})
		}
		for _, path := range []string{"/api/v1/pods", "/version", "/apis", "/openapi/v3"} {
			e.questions()
			began := time.Now()
			got := e.get("a.example.com", path, "alice")
			asked := len(e.questions())
			if got.code != http.StatusLoopDetected || !strings.Contains(got.body, "forwarded by a front door before, and leads back to one") {
				t.Errorf("GET %s = %d %s, want 508 with the cause", path, got.code, got.body)
			}
			if took := time.Since(began); asked > 10 || took > time.Second {
				t.Errorf("GET %s caused %d requests and took %s, want a few at once", path, asked, took)
			}
		}
	})
}
