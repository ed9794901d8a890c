//go:build incumbent

package behind

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
)

const listNodes = "/apis/metrics.k8s.io/v1/nodes"

// asking is a client that requests the metrics of nodes, with the expected result.
type asking struct {
	who    string
	config *rest.Config
	header http.Header
	code   int
	part   string
}

func (a asking) try() error {
	code, body, err := asks(a.config, a.header, listNodes)
	switch {
	case err != nil:
		return err
	case code != a.code || !strings.Contains(body, a.part):
		return fmt.Errorf("answered %d %.300s; want %d and in it %s", code, body, a.code, a.part)
	}
	return nil
}

func checkAll(t *testing.T, all ...asking) {
	t.Helper()
	for _, a := range all {
		if err := a.try(); err != nil {
			t.Errorf("request by %s: %v, want the expected access", a.who, err)
		}
	}
}

const (
	allowed = `"kind":"NodeMetricsList"`
	joeMay  = `nodes.metrics.k8s.io is forbidden: User \"joe\" cannot list resource`
)

// bearer is a client without a certificate.
func bearer(config *rest.Config, token string) *rest.Config {
	out := rest.CopyConfig(config)
	out.CertData, out.KeyData, out.BearerToken = nil, nil, token
	return out
}

func (s *installed) reviews(t *testing.T) {
	for _, account := range []string{"weak", "viewer"} {
		kubectl(t, s.Kubeconfig, "", "-n", "shop", "create", "serviceaccount", account)
	}
	kubectl(t, s.Kubeconfig, "", "create", "clusterrolebinding", "viewer", "--clusterrole=view", "--serviceaccount=shop:viewer")
	joe, jane := s.as("joe"), s.as("jane", "viewers")
	direct := s.direct(joe)
	checkAll(t,
		asking{who: "nobody in particular, through kube-apiserver", config: joe, code: 403, part: joeMay},
		asking{who: "a viewer, through kube-apiserver", config: jane, code: 200, part: allowed},
		asking{who: "a token of somebody without rights", config: bearer(direct, s.token("shop", "weak")), code: 403, part: "system:serviceaccount:shop:weak"},
		asking{who: "a token of a viewer", config: bearer(direct, s.token("shop", "viewer")), code: 200, part: allowed},
		asking{who: "a token of nobody", config: bearer(direct, "nonsense"), code: 401, part: "Unauthorized"},
		asking{who: "no credentials", config: bearer(direct, ""), code: 401, part: "Unauthorized"},
		asking{who: "a client certificate of nobody in particular", config: direct, code: 403, part: joeMay},
		asking{who: "a client certificate of a viewer", config: s.direct(jane), code: 200, part: allowed},
	)
}

// presenting is a client with a certificate of a front-proxy authority.
func (s *installed) presenting(t *testing.T, authority *pki.Authority, name string) *rest.Config {
	t.Helper()
	cert, key, err := authority.Issue(pki.Leaf{CommonName: name, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	config := s.direct(s.as("x"))
	config.CertData, config.KeyData = cert, key
	return config
}

func (s *installed) forged(t *testing.T) {
	joe := s.as("joe")
	root := http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}
	checkAll(t,
		asking{who: "headers through kube-apiserver", config: joe, header: root, code: 403, part: joeMay},
		asking{who: "headers without a certificate", config: bearer(s.direct(joe), ""), header: root, code: 401, part: "Unauthorized"},
		asking{who: "headers beside a client certificate", config: s.direct(joe), header: root, code: 403, part: joeMay},
		asking{who: "a certificate of the front proxies' authority with another name", config: s.presenting(t, s.Keys().FrontProxy(), "somebody"), header: root, code: 401, part: "Unauthorized"},
		asking{who: "the front proxy", config: s.presenting(t, s.Keys().FrontProxy(), pki.FrontProxyClientName), header: root, code: 200, part: allowed},
		asking{who: "the front proxy, for joe", config: s.presenting(t, s.Keys().FrontProxy(), pki.FrontProxyClientName), header: http.Header{"X-Remote-User": {"joe"}}, code: 403, part: joeMay},
	)
}

// rotate replaces the authority of front proxies as an administrator does: both are trusted first, then the certificate
// changes, then the old one is removed. Requests through kube-apiserver succeed throughout.
func (s *installed) rotate(t *testing.T) {
	old := s.presenting(t, s.Keys().FrontProxy(), pki.FrontProxyClientName)
	next, err := pki.NewAuthority("next front proxies")
	if err != nil {
		t.Fatal(err)
	}
	fresh := s.presenting(t, next, pki.FrontProxyClientName)
	root := http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}
	admin := asking{who: "an administrator, through kube-apiserver", config: s.as("admin", "system:masters"), code: 200, part: allowed}
	step := func(what string, a asking) {
		t.Helper()
		eventually(t, what, func() error {
			checkAll(t, admin)
			return a.try()
		})
	}
	place := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(s.Keys().Path(name)+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.Keys().Path(name)+".new", s.Keys().Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	place("front-proxy-ca.crt", append(s.Keys().FrontProxy().PEM(), next.PEM()...))
	step("both are trusted", asking{config: fresh, header: root, code: 200, part: allowed})
	before := s.reloads(t)
	place("front-proxy-client.key", fresh.KeyData)
	place("front-proxy-client.crt", fresh.CertData)
	eventually(t, "kube-apiserver presents the new one", func() error {
		checkAll(t, admin)
		if s.reloads(t) == before {
			return errNotYet
		}
		return nil
	})
	place("front-proxy-ca.crt", next.PEM())
	// kube-apiserver adds to the published CAs and removes none, because of its replicas: removal is a manual step.
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"requestheader-client-ca-file": string(next.PEM())}})
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, s.Kubeconfig, "", "-n", "kube-system", "patch", "configmap", "extension-apiserver-authentication", "--type=merge", "-p", string(patch))
	step("the old one is refused", asking{config: old, header: root, code: 401, part: "Unauthorized"})
	checkAll(t, admin)
}

// reloads returns how often kube-apiserver has reloaded its client certificate. Only its log contains that.
func (s *installed) reloads(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(s.Log("kube-apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	return len(reloaded.FindAll(log, -1))
}

var reloaded = regexp.MustCompile(`"Loaded a new cert/key pair" name="aggregator-proxy-cert`)

// newAuthority starts the server without its stored keys.
func (s *installed) newAuthority(t *testing.T) {
	bundle := func() string {
		return kubectl(t, s.Kubeconfig, "", "get", "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.caBundle}")
	}
	before := bundle()
	s.process.Finish(t)
	if err := os.RemoveAll(s.file("certs")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.start(t)
	eventually(t, "another caBundle, and an answer", func() error {
		if bundle() == before {
			return errNotYet
		}
		return asking{config: s.as("admin", "system:masters"), code: 200, part: allowed}.try()
	})
	eventually(t, "available", func() error { return s.available(t) })
	t.Logf("from the start of the server: %s", time.Since(began).Round(10*time.Millisecond))
}

var score = regexp.MustCompile(`(?m)^score (\d+)/(\d+), .*\d+ not applicable$`)

// examined: full score for every kind of resource. The values of custom and external metrics are not objects: their documents
// are examined as they are, and the score is recorded.
func (s *installed) examined(t *testing.T) {
	for _, name := range hosted {
		out := runProgram(t, s.Kubeconfig, "", "aggregator", "conformance", "apiservice", name)
		m := score.FindStringSubmatch(out.stdout)
		if m == nil || m[1] != m[2] && !strings.Contains(name, ".external.") {
			t.Errorf("conformance of %s = %s, want the full score", name, out)
			continue
		}
		book.scored("extserver", name, m[1]+"/"+m[2])
	}
}
