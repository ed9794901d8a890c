package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// apiServer is an API server with n APIServices, the first of which is unavailable.
func apiServer(t *testing.T, n int) *httptest.Server {
	t.Helper()
	var list strings.Builder
	list.WriteString(`{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[`)
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		status, reason := "True", "Passed"
		if i == 0 {
			status, reason = "False", "FailedDiscoveryCheck"
		}
		fmt.Fprintf(&list, `{"metadata":{"name":"v1.g%04d.example.com"},"spec":{"group":"g%04d.example.com","version":"v1","service":{"name":"s","namespace":"n"}},`+
			`"status":{"conditions":[{"type":"Available","status":%q,"reason":%q,"message":"<script>alert(1)</script>"}]}}`, i, i, status, reason)
	}
	list.WriteString(`]}`)
	m := http.NewServeMux()
	m.HandleFunc("GET /apis/apiregistration.k8s.io/v1/apiservices", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, list.String())
	})
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"gitVersion":"v1.34.0"}`) })
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return s
}

// started is a console that runs until the test ends.
func started(t *testing.T, client *rest.Config) *Console {
	t.Helper()
	return startedWith(t, Config{Client: client, Context: "test", Interval: time.Second, NoDrills: "no drills here"})
}

func startedWith(t *testing.T, cfg Config) *Console {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run of the console = %v, want no error", err)
		}
	})
	return c
}

type answered struct {
	code   int
	body   string
	header http.Header
}

// send sends a request to the console. Headers are in pairs; Host is the host.
func send(t *testing.T, c *Console, method, path, body string, headers ...string) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.guard.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, string(content), resp.Header}
}

func (c *Console) origin() string { return "http://" + c.guard.host }

func withCookie(c *Console) []string { return []string{"Cookie", cookieName + "=" + c.guard.cookie} }

// The link works once, from the page itself, and gives a cookie that scripts cannot read and other sites do not send.
func TestLoginLinkWorksOnce(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	token := strings.TrimPrefix(c.URL(), "http://"+c.guard.host+"/#token=")
	body := fmt.Sprintf(`{"token":%q}`, token)
	if a := send(t, c, "POST", "/session", `{"token":"guess"}`, "Origin", c.origin()); a.code != http.StatusUnauthorized {
		t.Errorf("POST of a guessed token = %d %s, want 401", a.code, a.body)
	}
	a := send(t, c, "POST", "/session", body, "Origin", c.origin())
	cookie := a.header.Get("Set-Cookie")
	if a.code != http.StatusOK || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") || !strings.Contains(cookie, "Path="+c.guard.prefix) {
		t.Fatalf("POST of the token = %d %s, cookie %q; want 200 and a restricted cookie", a.code, a.body, cookie)
	}
	if a := send(t, c, "POST", "/session", body, "Origin", c.origin()); a.code != http.StatusUnauthorized || !strings.Contains(a.body, "works once") {
		t.Errorf("second POST of the token = %d %s, want 401 and \"works once\"", a.code, a.body)
	}
}

func TestLoginLinkExpires(t *testing.T) {
	now := time.Now()
	g, err := newGuard("127.0.0.1:1", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(tokenLifetime + time.Second)
	if _, err := g.exchange(g.token); err == nil {
		t.Error("exchange of an expired token returned no error, want one")
	}
}

func TestForeignOriginsAndSessionsAreRejected(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	cookie := withCookie(c)
	api := c.guard.prefix + "api/"
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
	}{
		{"another host", "GET", "/", "", []string{"Host", "evil.example.com"}, http.StatusMisdirectedRequest},
		{"another port", "GET", "/", "", []string{"Host", "127.0.0.1:1"}, http.StatusMisdirectedRequest},
		{"no session", "GET", api + "stream", "", nil, http.StatusUnauthorized},
		{"a wrong session", "GET", api + "apiservices/v1.g0000.example.com", "", []string{"Cookie", cookieName + "=x"}, http.StatusUnauthorized},
		{"no origin", "POST", api + "doctor", "{}", cookie, http.StatusForbidden},
		{"another origin", "POST", api + "doctor", "{}", append(cookie[:2:2], "Origin", "http://evil.example.com"), http.StatusForbidden},
		{"origin null", "POST", api + "doctor", "{}", append(cookie[:2:2], "Origin", "null"), http.StatusForbidden},
		{"a request of another page", "GET", "/", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
		{"another method", "DELETE", "/", "", nil, http.StatusMethodNotAllowed},
		{"a large body", "POST", api + "doctor", `{"apiService":"` + strings.Repeat("a", maxRequest) + `"}`, append(cookie[:2:2], "Origin", c.origin()), http.StatusRequestEntityTooLarge},
		{"no JSON", "POST", api + "doctor", "x", append(cookie[:2:2], "Origin", c.origin()), http.StatusBadRequest},
		{"an APIService that is not there", "POST", api + "doctor", `{"apiService":"x"}`, append(cookie[:2:2], "Origin", c.origin()), http.StatusNotFound},
		{"drills where none may run", "POST", api + "drills", `{"names":["refuse"]}`, append(cookie[:2:2], "Origin", c.origin()), http.StatusBadRequest},
		{"no run", "GET", api + "runs/7", "", cookie, http.StatusNotFound},
		{"a file that is not of the page", "GET", "/server.go", "", nil, http.StatusNotFound},
	} {
		if a := send(t, c, tt.method, tt.path, tt.body, tt.headers...); a.code != tt.code {
			t.Errorf("request (%s): status = %d %s, want %d", tt.name, a.code, a.body, tt.code)
		}
	}
}

// The policy allows only files of the page, and the page has no inline script or style.
func TestPageLoadsOnlyItsFiles(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	a := send(t, c, "GET", "/", "")
	csp := a.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("Content-Security-Policy = %q, want %s", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(a.body, "<style") || strings.Contains(a.body, " style=") || strings.Contains(a.body, "//") {
		t.Errorf("page with content that its policy forbids: %s, want none", a.body)
	}
	for name := range pageFiles {
		if a := send(t, c, "GET", "/"+name, ""); a.code != http.StatusOK || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET of %q = %d, want 200 and nosniff", name, a.code)
		}
	}
	code, err := page.ReadFile("page/console.js")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(code); strings.Contains(text, "innerHTML") || strings.Contains(text, "https://") {
		t.Error("console.js contains innerHTML or https://, want neither")
	}
}

// stream opens the stream of events, and returns a function that waits for the next event of a kind.
func stream(t *testing.T, c *Console) func(event string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", c.origin()+c.guard.prefix+"api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", cookieName+"="+c.guard.cookie)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET of the stream = %s, want 200 and text/event-stream", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	return func(event string) []byte {
		t.Helper()
		is := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				is = name
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && is == event {
				return []byte(data)
			}
		}
		t.Fatalf("the stream ended without the event %s: %v, want the event", event, lines.Err())
		return nil
	}
}

func TestConsoleShowsThousandAPIServices(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1000).URL})
	var got changes
	if err := json.Unmarshal(stream(t, c)("apiservices"), &got); err != nil {
		t.Fatal(err)
	}
	down := 0
	for _, r := range got.Set {
		if r.State == stateDown {
			down++
		}
	}
	if len(got.Set) != 1000 || !got.Complete || down != 1 {
		t.Errorf("%d APIServices, %d unavailable, complete = %v; want 1000, 1 and true", len(got.Set), down, got.Complete)
	}
	a := send(t, c, "GET", c.guard.prefix+"api/apiservices/v1.g0000.example.com", "", withCookie(c)...)
	if a.code != http.StatusOK || !strings.Contains(a.body, "FailedDiscoveryCheck") || strings.Contains(a.body, "<script>") {
		t.Errorf("GET of an APIService = %d %s, want 200 with its condition, escaped", a.code, a.body)
	}
}

func TestStreamsOverTheLimitAreRejected(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	for range maxStreams {
		stream(t, c)("overview")
	}
	if a := send(t, c, "GET", c.guard.prefix+"api/stream", "", withCookie(c)...); a.code != http.StatusServiceUnavailable {
		t.Errorf("GET of one stream too many = %d %s, want 503", a.code, a.body)
	}
}

// The audit list has every refused and every executed action.
func TestAuditListHasEveryAction(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	send(t, c, "POST", c.guard.prefix+"api/doctor", "{}", withCookie(c)...)
	var deeds []deed
	if err := json.Unmarshal(stream(t, c)("audit"), &deeds); err != nil {
		t.Fatal(err)
	}
	if len(deeds) != 1 || deeds[0].What != "refused" || !deeds[0].Bad {
		t.Errorf("audit list = %+v, want one refused action", deeds)
	}
}

func TestShortConsoleIntervalIsRejected(t *testing.T) {
	if _, err := New(Config{Client: &rest.Config{Host: "http://127.0.0.1:1"}, Interval: time.Millisecond}); err == nil {
		t.Error("New with an interval of a millisecond returned no error, want one")
	}
}

// Another user of the machine opens connections and sends no data.
func TestA52IdleConnectionsDoNotBlockRequests(t *testing.T) {
	c := startedWith(t, Config{Client: &rest.Config{Host: apiServer(t, 1).URL}, headerTimeout: time.Hour}) // none ends by the timeout
	next := stream(t, c)                                                                                   // a page that is open
	for range maxConnections + 6 {
		idle, err := net.Dial("tcp", c.guard.host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Close() })
	}
	if a := send(t, c, "GET", "/", ""); a.code != http.StatusOK {
		t.Errorf("GET / = %d %s, want 200", a.code, a.body)
	}
	if a := send(t, c, "GET", "/elsewhere", "", "Host", "example.com"); a.code != http.StatusMisdirectedRequest {
		t.Errorf("GET of another host = %d %s, want 421", a.code, a.body)
	}
	next("audit") // the stream is still open
}

// Another user of the machine requests public files, and keeps the connections open.
func TestConnectionsWithoutSessionEndAfterOneResponse(t *testing.T) {
	c := started(t, &rest.Config{Host: apiServer(t, 1).URL})
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", c.guard.host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for range maxConnections + 6 {
		conn := dial()
		if _, err := io.WriteString(conn, "GET /icon.svg HTTP/1.1\r\nHost: "+c.guard.host+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
			t.Fatalf("response = %.200q with the error %v, want 200 and the end of the connection", answer, err)
		}
	}
	conn := dial()
	reader := bufio.NewReader(conn)
	for range 2 {
		if _, err := io.WriteString(conn, "GET "+c.guard.prefix+"icon.svg HTTP/1.1\r\nHost: "+c.guard.host+"\r\nCookie: "+withCookie(c)[1]+"\r\n\r\n"); err != nil {
			t.Fatalf("request with the session: %v, want an open connection", err)
		}
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("response with the session: %v, want an open connection", err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("response with the session = %s with the error %v, want 200", answer.Status, err)
		}
	}
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	c := startedWith(t, Config{Client: &rest.Config{Host: apiServer(t, 1).URL}, headerTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", c.guard.host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read from a silent connection = %d, %v; want EOF", n, err)
	}
}

// Another user of the machine sends requests that are refused.
func TestA52RefusedRequestsDoNotFillTheAuditList(t *testing.T) {
	now := time.Now()
	var log strings.Builder
	c, err := New(Config{Client: &rest.Config{Host: apiServer(t, 1).URL}, Log: &log, now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	guess := func() {
		r := httptest.NewRequest(http.MethodPost, "http://"+c.guard.host+"/session", strings.NewReader(`{"token":"guess"}`))
		r.Header.Set("Origin", c.origin())
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("a guessed token = %d, want 401", w.Code)
		}
	}
	for range 1000 {
		guess()
	}
	if got := strings.Count(log.String(), "\n"); got != refusalBurst || len(c.audit.all) != refusalBurst {
		t.Errorf("%d lines and %d entries, want %d", got, len(c.audit.all), refusalBurst)
	}
	now = now.Add(time.Minute)
	guess()
	if got, want := c.audit.all[0].Result, fmt.Sprintf("(%d more requests refused since the last entry)", 1000-refusalBurst); !strings.Contains(got, want) {
		t.Errorf("the next entry is %q, want %q", got, want)
	}
}
