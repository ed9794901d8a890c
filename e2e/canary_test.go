package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

const everythingPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"RequestResponse"}]}`

// goodToken is of an administrator, from a file of tokens.
const goodToken = "canary-good-token"

// A canary is a secret in one of the places where clients put secrets. It may appear in the client's response. It may appear in
// a sink only if allowed names the sink.
type canary struct {
	name    string
	call    call
	secret  string // in the call
	code    int    // of the answer, once the API behind it is there
	allowed string
	// answered is set if the response may contain the secret: because the request reads it, or because the error describes the
	// sent body.
	answered bool
}

const (
	secretsPath    = "/api/v1/namespaces/default/secrets"
	configMapsPath = "/api/v1/namespaces/default/configmaps"
	echoPath       = "/apis/echo.example.com/v1/namespaces/default/things/x"
	jsonBody       = "Content-Type: application/json"
)

func websocketHeaders(more ...string) []string {
	return append([]string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, more...)
}

func subprotocol(token string) string {
	return "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io"
}

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// credentials are secrets in headers and in the target.
func credentials() []canary {
	list := "/api/v1/namespaces"
	return []canary{
		{name: "good bearer", secret: goodToken, code: 200, call: call{noCertificate: true, method: "GET", target: list, headers: []string{"Authorization: Bearer " + goodToken}}},
		{name: "good bearer to a backend", secret: goodToken, code: 200, call: call{noCertificate: true, method: "GET", target: echoPath, headers: []string{"Authorization: Bearer " + goodToken}}},
		{name: "bad bearer", secret: "canary-bad-bearer", code: 401, call: call{noCertificate: true, method: "GET", target: list, headers: []string{"Authorization: Bearer canary-bad-bearer"}}},
		{name: "bad bearer like a JWT", secret: "canary-in-jwt", code: 401, call: call{noCertificate: true, method: "GET", target: list,
			headers: []string{"Authorization: Bearer " + encoded(`{"alg":"canary-in-jwt","kid":"canary-in-jwt"}`) + "." + encoded(`{"iss":"canary-in-jwt"}`) + ".canary-in-jwt"}}},
		{name: "bad bearer beside a certificate", secret: "canary-beside", code: 401, call: call{method: "GET", target: list, headers: []string{"Authorization: Bearer canary-beside"}}},
		{name: "bearer that is too long", secret: "canary-long", code: 401, call: call{noCertificate: true, method: "GET", target: list, headers: []string{"Authorization: Bearer " + strings.Repeat("canary-long", 2000)}}},
		{name: "bearer twice", secret: "canary-twice", code: 401, call: call{method: "GET", target: list, headers: []string{"Authorization: Bearer canary-twice", "Authorization: Bearer canary-twice"}}},
		{name: "basic", secret: "canary-basic", code: 401, call: call{noCertificate: true, method: "GET", target: list, headers: []string{"Authorization: Basic " + encoded("alice:canary-basic")}}},
		{name: "good subprotocol", secret: goodToken, code: 101, call: call{noCertificate: true, method: "GET", target: list + "?watch=true", headers: websocketHeaders(subprotocol(goodToken), "Origin: https://{host}")}},
		{name: "good subprotocol to a backend", secret: goodToken, code: 101, call: call{noCertificate: true, method: "GET", target: echoPath + "/console", headers: websocketHeaders(subprotocol(goodToken))}},
		{name: "bad subprotocol", secret: "canary-bad-subprotocol", code: 401, call: call{noCertificate: true, method: "GET", target: list + "?watch=true", headers: websocketHeaders(subprotocol("canary-bad-subprotocol"))}},
		{name: "cookie", secret: "canary-cookie", code: 200, call: call{method: "GET", target: list, headers: []string{"Cookie: session=canary-cookie"}}},
		{name: "cookie to a backend", secret: "canary-cookie-backend", code: 200, call: call{method: "GET", target: echoPath, headers: []string{"Cookie: session=canary-cookie-backend", "Proxy-Authorization: Basic canary-cookie-backend", "X-Api-Key: canary-cookie-backend"}}},
		{name: "cookie on an upgrade", secret: "canary-cookie-upgrade", code: 101, call: call{method: "GET", target: echoPath + "/console", headers: websocketHeaders("Cookie: canary-cookie-upgrade", "Sec-WebSocket-Protocol: canary-cookie-upgrade")}},
		{name: "upgrade that is refused", secret: "canary-upgrade", code: 403, call: call{method: "GET", target: list + "?watch=true", headers: websocketHeaders("Origin: https://elsewhere.example.com/canary-upgrade", "Cookie: canary-upgrade")}},
		{name: "query", secret: "canary-query-local", code: 200, call: call{method: "GET", target: list + "?access_token=canary-query-local&token=canary-query-local"}},
		{name: "query to a backend", secret: "canary-query-backend", code: 200, call: call{method: "GET", target: echoPath + "?access_token=canary-query-backend"}},
		{name: "query without a value", secret: "canary-nameless", code: 200, call: call{method: "GET", target: list + "?canary-nameless"}},
		{name: "query with an escaped name", secret: "canary-query-escaped", code: 200, call: call{method: "GET", target: list + "?access%5Ftoken=canary-query-escaped"}},
		{name: "query of what nobody serves", secret: "canary-query-404", code: 404, call: call{method: "GET", target: "/apis/nobody.example.com/v1/things?access_token=canary-query-404"}},
		{name: "query that is refused", secret: "canary-query-400", code: 400, call: call{method: "GET", target: list + "?access_token=canary-query-400;x"}},
		{name: "referrer", secret: "canary-referrer", code: 200, call: call{method: "GET", target: list, headers: []string{"Referer: https://console.example.com/?token=canary-referrer", "X-Forwarded-For: canary-referrer", "Forwarded: for=canary-referrer", "Baggage: token=canary-referrer", "Tracestate: token=canary-referrer"}}},
		{name: "identity headers of a stranger", secret: "canary-identity", code: 401, call: call{noCertificate: true, method: "GET", target: list, headers: []string{"Authorization: Bearer x", "X-Remote-User: canary-identity", "X-Remote-Extra-Secret: canary-identity", "Impersonate-User: canary-identity"}}},
		{name: "identity headers beside a certificate", secret: "canary-extra", code: 200, call: call{method: "GET", target: list, headers: []string{"X-Remote-User: canary-extra", "X-Remote-Group: canary-extra", "X-Remote-Extra-Secret: canary-extra"}}},
		// An audit log records the impersonated user. No other output contains it except the access log, by name.
		{name: "extra of an impersonated user", secret: "canary-impersonated", code: 403, allowed: "audit webhook", call: call{method: "GET", target: list, headers: []string{"Impersonate-User: bob", "Impersonate-Extra-Secret: canary-impersonated"}}},
	}
}

// bodies are secrets in request bodies and stored objects.
func bodies() []canary {
	secret := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"}` + more + `}`
	}
	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"%s"}}`
	reviews := "/apis/authentication.k8s.io/v1/tokenreviews"
	patch := func(kind string) []string { return []string{"Content-Type: application/" + kind + "+json"} }
	return []canary{
		{name: "secret", secret: "canary-secret", code: 201, answered: true, call: call{method: "POST", target: secretsPath, headers: []string{jsonBody}, body: secret("one", `,"data":{"k":"`+encoded("canary-secret")+`"}`)}},
		{name: "secret as text", secret: "canary-string", code: 201, answered: true, call: call{method: "POST", target: secretsPath, headers: []string{jsonBody}, body: secret("two", `,"stringData":{"k":"canary-string"}`)}},
		{name: "secret that is read", secret: "canary-secret", code: 200, answered: true, call: call{method: "GET", target: secretsPath + "/one"}},
		{name: "secrets that are listed", secret: "canary-secret", code: 200, answered: true, call: call{method: "GET", target: "/api/v1/secrets"}},
		{name: "merge patch", secret: "canary-merge", code: 200, answered: true, call: call{method: "PATCH", target: secretsPath + "/one", headers: patch("merge-patch"), body: `{"stringData":{"m":"canary-merge"}}`}},
		{name: "JSON patch with a test", secret: "canary-jsonpatch", code: 422, call: call{method: "PATCH", target: secretsPath + "/one", headers: patch("json-patch"), body: `[{"op":"test","path":"/data/k","value":"canary-jsonpatch"}]`}},
		{name: "apply", secret: "canary-apply", code: 201, answered: true, call: call{method: "PATCH", target: secretsPath + "/three?fieldManager=me", headers: []string{"Content-Type: application/apply-patch+yaml"}, body: secret("three", `,"stringData":{"k":"canary-apply"}`)}},
		{name: "apply dry", secret: "canary-dry", code: 201, answered: true, call: call{method: "PATCH", target: secretsPath + "/four?fieldManager=me&dryRun=All", headers: []string{"Content-Type: application/apply-patch+yaml"}, body: secret("four", `,"stringData":{"k":"canary-dry"}`)}},
		{name: "secret that is no base64", secret: "canary-raw", code: 400, call: call{method: "POST", target: secretsPath, headers: []string{jsonBody}, body: secret("five", `,"data":{"k":"canary-raw"}`)}},
		{name: "secret of wrong types", secret: "canary-type", code: 400, call: call{method: "POST", target: secretsPath, headers: []string{jsonBody}, body: secret("six", `,"immutable":"canary-type"`)}},
		{name: "secret, applied, of wrong types", secret: "canary-apply-type", code: 500, answered: true, call: call{method: "PATCH", target: secretsPath + "/seven?fieldManager=me", headers: []string{"Content-Type: application/apply-patch+yaml"}, body: secret("seven", `,"immutable":"canary-apply-type"`)}},
		{name: "secret to the wrong path", secret: "canary-misplaced", code: 400, call: call{method: "POST", target: configMapsPath, headers: []string{jsonBody}, body: secret("eight", `,"data":{"k":"`+encoded("canary-misplaced")+`"}`)}},
		{name: "body that is no JSON", secret: "canary-broken", code: 400, answered: true, call: call{method: "POST", target: secretsPath, headers: []string{jsonBody}, body: `{"data":canary-broken}`}},
		{name: "body that is only a secret", secret: "canary-only", code: 400, answered: true, allowed: "audit webhook", call: call{method: "POST", target: configMapsPath, headers: []string{jsonBody}, body: `canary-only`}},
		{name: "body to a backend", secret: "canary-proxied", code: 200, call: call{method: "POST", target: echoPath, headers: []string{jsonBody}, body: `{"token":"canary-proxied"}`}},
		{name: "config map", secret: "canary-config", code: 201, answered: true, allowed: "audit webhook", call: call{method: "POST", target: configMapsPath, headers: []string{jsonBody}, body: `{"metadata":{"name":"c"},"data":{"k":"canary-config"}}`}},
		{name: "review of a good token", secret: goodToken, code: 201, answered: true, call: call{method: "POST", target: reviews, headers: []string{jsonBody}, body: fmt.Sprintf(review, goodToken)}},
		{name: "review of a bad token", secret: "canary-reviewed", code: 201, answered: true, call: call{method: "POST", target: reviews, headers: []string{jsonBody}, body: fmt.Sprintf(review, "canary-reviewed")}},
	}
}

// E1 and E2: no credential appears in any output for operators, at any verbosity.
func TestE1E2NoSecretIsTold(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	w := startWatched(t, map[string]string{
		"policy.yaml": everythingPolicy,
		"tokens.csv":  goodToken + `,carol,1,"system:masters"` + "\n",
	}, "--token-auth-file", "tokens.csv")
	registerEcho(t, w.config)
	if err := programs.Poll(w.process.Exited(), func() error {
		if code, answer := w.send(call{method: "GET", target: echoPath}); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	canaries := append(credentials(), bodies()...)
	for _, c := range canaries {
		if code, answer := w.send(c.call); code != c.code {
			t.Errorf("request with the %s: status = %d, want %d: %.300s", c.name, code, c.code, answer)
		} else if holds(answer, c.secret) && !c.answered {
			t.Errorf("%s: the response contains the secret, want none: %.500s", c.name, answer)
		}
	}
	canaries = append(canaries, canary{name: "token of the webhook", secret: "canary-of-the-webhook"},
		canary{name: "key of a client", secret: keyOf(t, w.config)}, issued(t, w))
	pages := told(t, w)
	w.process.Ended = true
	if code, err := w.process.Stop(os.Interrupt); code != 0 || err != nil {
		t.Fatalf("exit status of the front door = %d, %v; want 0 and no error", code, err)
	}
	pages["log"], pages["spans"], pages["webhook"], pages["audit"] = w.sinks["log"].String(), w.sinks["spans"].String(), w.sinks["webhook"].String(), w.audited()
	for page, text := range pages {
		if len(text) == 0 {
			t.Errorf("%s is empty, want some output", page)
		}
		for _, c := range canaries {
			if i := strings.Index(text, c.secret); holds(text, c.secret) && !slices.Contains(strings.Fields(c.allowed), page) {
				t.Errorf("%s: the secret is in %s, want none: %.300s", c.name, page, text[max(0, i-150):])
			}
		}
	}
	t.Run("E4 the credential is named and not shown", func(t *testing.T) { checkCredentials(t, pages["audit"]) })
	for page, want := range map[string]string{"audit": "canary-config", "webhook": "canary-config", "log": configMapsPath, "spans": configMapsPath} {
		if !strings.Contains(pages[page], want) {
			t.Errorf("%s has no %s, want it as proof that the output is complete", page, want)
		}
	}
}

// told returns the pages that users with access to a front door can read.
func told(t *testing.T, w *watched) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, path := range []string{"/metrics", "/debug/aggregation", "/readyz?verbose", "/livez?verbose", "/version", "/openid/v1/jwks", "/apis", "/api/v1/events"} {
		code, answer := w.send(call{method: "GET", target: path})
		if code != http.StatusOK {
			t.Errorf("GET %s = %d, want 200", path, code)
		}
		pages[path] = answer
	}
	return pages
}

func keyOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil || pair.PrivateKey == nil {
		t.Fatalf("key pair of the client: %v, want a valid one", err)
	}
	lines := strings.Split(string(config.KeyData), "\n")
	return lines[1]
}

// issued requests a token and uses it. The secret is its signature: the rest is public, or would be found with it.
func issued(t *testing.T, w *watched) canary {
	t.Helper()
	code, answer := w.send(call{method: "POST", target: "/api/v1/namespaces/default/serviceaccounts/default/token", headers: []string{jsonBody},
		body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`})
	token := regexp.MustCompile(`"token": ?"([^"]+)"`).FindStringSubmatch(answer)
	if code != http.StatusCreated || token == nil {
		t.Fatalf("POST of a TokenRequest = %d %s, want 201 and a token", code, answer)
	}
	if code, answer := w.send(call{noCertificate: true, method: "GET", target: "/api", headers: []string{"Authorization: Bearer " + token[1]}}); code != http.StatusOK {
		t.Errorf("GET with the issued token = %d %s, want 200", code, answer)
	}
	return canary{name: "issued token", secret: token[1][strings.LastIndexByte(token[1], '.')+1:]}
}

// checkCredentials checks how the events describe the credentials of their users.
func checkCredentials(t *testing.T, audited string) {
	t.Helper()
	type known struct{ kind, id string }
	want := map[string]known{
		"portico-admin":                         {"client certificate", "X509SHA256="},
		"carol":                                 {"bearer token", ""}, // a line of a file has no id but the secret itself
		"system:serviceaccount:default:default": {"bearer token", "JTI="},
	}
	seen := map[string]bool{}
	for line := range strings.Lines(audited) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		k, ok := want[e.User.Username]
		if !ok {
			continue
		}
		seen[e.User.Username] = true
		id := strings.Join(e.User.Extra["authentication.kubernetes.io/credential-id"], " ")
		if e.Annotations["portico.dev/credential"] != k.kind || !strings.HasPrefix(id, k.id) || k.id == "" && id != "" {
			t.Errorf("event of %s = %s, want the kind and the ID of the credential", e.User.Username, line)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("users in the audit log = %v, want %v", seen, want)
	}
}

// E3: data from a client cannot begin a log line, send control sequences to a terminal or fill the disk.
func TestE3ForgedLines(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	const forged = "x\r\n0000-01-01T00:00:00.000Z\tINFO\tforged\x1b[31m"
	w := startWatched(t, map[string]string{"policy.yaml": everythingPolicy})
	get := func(target string, headers ...string) call {
		return call{method: "GET", target: target, headers: headers}
	}
	const one = "/api/v1/namespaces/a"
	jwt := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"x\r\nforged"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"x\r\nforged\u001b[31m"}`)) + ".AAAA"
	for name, c := range map[string]struct {
		call call
		code int
	}{
		"agent with bytes of terminals": {get(one, "User-Agent: \x9b31m\u009b31mforged"), 404},
		"agent with a tab":              {get(one, "User-Agent: a\tINFO\tforged"), 404},
		"agent with an escape":          {get(one, "User-Agent: \x1b[31mforged"), 400},
		"agent without end":             {get(one, "User-Agent: "+strings.Repeat("y", 1<<20)), 431},
		"agent of the size allowed":     {get(one, "User-Agent: "+strings.Repeat("y", 60<<10)), 404},
		"path with line ends":           {get("/api/v1/namespaces/" + url.PathEscape(forged)), 400},
		"path without end":              {get("/api/v1/namespaces/" + strings.Repeat("y", 1<<20)), 431},
		"path of the size allowed":      {get("/api/v1/namespaces/" + strings.Repeat("y", 2000)), 404},
		"query with line ends":          {get("/api/v1/namespaces?labelSelector=" + url.QueryEscape(forged)), 400},
		"audit id without end":          {get(one, "Audit-Id: "+strings.Repeat("z", 10<<10)), 404},
		"token with line ends inside":   {call{noCertificate: true, method: "GET", target: "/api", headers: []string{"Authorization: Bearer " + jwt}}, 401},
		"body with line ends inside":    {call{method: "POST", target: configMapsPath, headers: []string{jsonBody}, body: `{"kind":"x\r\nforged"}`}, 400},
	} {
		if code, answer := w.send(c.call); code != c.code {
			t.Errorf("request with the %s: status = %d, want %d: %.300s", name, code, c.code, answer)
		}
	}
	knockWith(t, w, forged)
	whoIs := filepath.Join(w.dir, "forged.kubeconfig")
	issue := exec.Command(filepath.Join(binaries, "aggregator"), "kubeconfig", "--user", forged, "--file", whoIs)
	issue.Dir, issue.Env = w.dir, []string{"HOME=" + w.dir}
	if data := regexp.MustCompile(`--data-dir[ =](\S+)`).FindStringSubmatch(w.process.Output()); data != nil {
		issue.Args = append(issue.Args, "--data-dir", data[1])
	}
	if out, err := issue.CombinedOutput(); err != nil {
		t.Fatalf("aggregator kubeconfig failed: %v: %s, want no error", err, out)
	}
	theirs, err := clientcmd.BuildConfigFromFlags("", whoIs)
	if err != nil {
		t.Fatal(err)
	}
	admins := w.config
	w.config = theirs
	if code, answer := w.send(call{method: "GET", target: "/api/v1/pods"}); code != http.StatusForbidden {
		t.Errorf("GET as the forged user = %d %s, want 403", code, answer)
	}
	w.config = admins
	w.process.Ended = true
	if code, err := w.process.Stop(os.Interrupt); code != 0 || err != nil {
		t.Fatalf("exit status of the front door = %d, %v; want 0 and no error", code, err)
	}
	checkLog(t, w.sinks["log"].String())
	checkAudit(t, w.audited(), forged)
}

// knockWith offers an invented ALPN protocol. The failure is logged (CVE-2025-58189).
func knockWith(t *testing.T, w *watched, protocol string) {
	t.Helper()
	u, err := url.Parse(w.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	config, err := rest.TLSConfigFor(w.config)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{protocol}
	if conn, err := tls.Dial("tcp", u.Host, config); err == nil {
		_ = conn.Close()
		t.Error("the handshake with an unknown ALPN protocol succeeded, want an error")
	}
}

func checkLog(t *testing.T, text string) {
	t.Helper()
	begin := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)\t(DEBUG|INFO|WARN|ERROR)\t`)
	if !strings.Contains(text, "forged") {
		t.Error("the log has no forged text, want some as proof that it is complete")
	}
	if strings.Contains(text, "failed to export spans") {
		t.Error("spans were lost because of an invalid UTF-8 byte, want none lost")
	}
	for line := range strings.Lines(text) {
		if !begin.MatchString(line) || strings.HasPrefix(line, "0000-01-01") {
			t.Errorf("log line = %.200q, want one that begins with a time and a level", line)
		}
		if strings.ContainsAny(line, "\r\x00\x1b") || len(line) > 16<<10 {
			t.Errorf("log line of %d bytes: %.200q; want at most 16 KiB without control characters", len(line), line)
		}
	}
}

func checkAudit(t *testing.T, text, forged string) {
	t.Helper()
	found := false
	for line := range strings.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("audit log: %v, want JSON in each line: %.200q", err, line)
		}
		found = found || e.User.Username == forged
		if len(e.UserAgent) > 1024 || len(e.RequestURI) > 1024 || len(e.AuditID) > 64 || e.ObjectRef != nil && len(e.ObjectRef.Name) > 1024 {
			t.Errorf("audit event = %.300s, want fields within their limits", line)
		}
	}
	if !found {
		t.Errorf("no audit event has the user %q of the certificate, want one", forged)
	}
}
