package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/pki"
	"portico.dev/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store.
type memory struct {
	mu   sync.Mutex
	keys map[string][]byte
	err  error
}

func (m *memory) Get(_ context.Context, key string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.keys[key]
	return value, ok, m.err
}

func (m *memory) Put(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[key] = value
	return m.err
}

func (m *memory) PutFor(ctx context.Context, key string, value []byte, _ time.Duration) error {
	return m.Put(ctx, key, value)
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
	return m.err
}

func (m *memory) List(_ context.Context, prefix string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string][]byte{}
	for key, value := range m.keys {
		if strings.HasPrefix(key, prefix) {
			found[key] = value
		}
	}
	return found, m.err
}

// fakeEtcd answers AddLearner with its errors in order, and then with members.
type fakeEtcd struct {
	mu     sync.Mutex
	errs   []error
	asked  []string
	change error
}

func (f *fakeEtcd) Members(context.Context) ([]store.Member, error) {
	return []store.Member{{ID: "a1", Name: "first", Leader: true}}, f.change
}
func (f *fakeEtcd) RemoveMember(context.Context, string) error  { return f.change }
func (f *fakeEtcd) PromoteMember(context.Context, string) error { return f.change }
func (f *fakeEtcd) AddLearner(_ context.Context, name, address string) (map[string][]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, name+" "+address)
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return map[string][]string{"first": {"https://192.0.2.1:2380"}, name: {"https://" + address}}, nil
}

var ours = Versions{Portico: "v1", Kubernetes: "1.37", Etcd: "3.7", Storage: 1}

// handedOver is the HandOver that the fixture sends to a joining replica.
var handedOver = HandOver{
	Files: map[string][]byte{"ca.key": []byte("the key of the CA")}, Encryption: []byte("keys: []"), Settings: map[string]string{"etcd-prefix": "/registry"},
}

// fixture is a front door that can be joined.
type fixture struct {
	t       *testing.T
	ca      *pki.Authority
	tokens  *Tokens
	storage *memory
	etcd    *fakeEtcd
	server  *Server
	http    *httptest.Server
	logs    *observer.ObservedLogs
}

// authority is the CA of the front door now.
func (f *fixture) authority() *pki.Authority { return f.ca }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, ca: ca, storage: &memory{keys: map[string][]byte{}}, etcd: &fakeEtcd{}}
	core, logs := observer.New(zap.DebugLevel)
	f.logs = logs
	f.tokens = NewTokens(f.storage, f.authority)
	f.server = NewServer(ServerConfig{
		Authority: f.authority, Tokens: f.tokens, Etcd: f.etcd, Address: "192.0.2.1:2380", Versions: func() Versions { return ours },
		HandOver: func() (HandOver, error) { return handedOver, nil }, Logger: zap.New(core),
	})
	f.http = httptest.NewUnstartedServer(f.server)
	f.http.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: f.server.Certificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("no other name is served here")
	})}
	f.http.StartTLS()
	t.Cleanup(f.http.Close)
	return f
}

func (f *fixture) token() Token {
	f.t.Helper()
	token, _, err := f.tokens.Create(f.t.Context(), time.Hour, "")
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

func (f *fixture) joiner(token Token, v Versions) *Joiner {
	f.t.Helper()
	j, err := NewJoiner(f.http.URL, token, v, zap.NewNop())
	if err != nil {
		f.t.Fatal(err)
	}
	return j
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestReplicaJoinsWithToken(t *testing.T) {
	f := newFixture(t)
	f.etcd.errs = []error{fmt.Errorf("%w: another member joins", store.ErrBusy)}
	j := f.joiner(f.token(), ours)
	handed, err := j.Keys(within(t))
	if err != nil || string(handed.Files["ca.key"]) != "the key of the CA" || string(handed.Encryption) != "keys: []" || handed.Settings["etcd-prefix"] != "/registry" {
		t.Fatalf("Keys = %v, %v; want the CA's key, the encryption configuration and the settings", handed, err)
	}
	members, err := j.Member(within(t), "second", "192.0.2.2:2380")
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(members)), []string{"first", "second"}) {
		t.Fatalf("Member = %v, %v; want first and second", members, err)
	}
	if want := []string{"second 192.0.2.2:2380", "second 192.0.2.2:2380"}; !slices.Equal(f.etcd.asked, want) {
		t.Errorf("etcd was asked for %q, want %q: a member waits for its turn", f.etcd.asked, want)
	}
	if n := f.logs.FilterMessage("sent the cluster keys to a joining replica").Len(); n != 1 {
		t.Errorf("%d log lines about the hand-over, want 1", n)
	}
}

// E17: a replica without a valid token neither gets the keys nor becomes a member.
func TestE17JoinWithoutValidTokenIsRejected(t *testing.T) {
	f := newFixture(t)
	good := f.token()
	expired, deleted := f.token(), f.token()
	if err := f.tokens.Delete(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	var stored storedToken
	if err := json.Unmarshal(f.storage.keys[tokenKeys+expired.ID], &stored); err != nil {
		t.Fatal(err)
	}
	stored.Expires = time.Now().Add(-time.Second)
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	f.storage.keys[tokenKeys+expired.ID] = text
	wrong, other, hash := good, good, good
	wrong.Secret = strings.Repeat("a", secretLength)
	other.ID = "abcdefgh"
	hash.Secret = strings.Repeat("7", secretLength)
	hash.ID = good.ID
	for name, token := range map[string]Token{"wrong secret": wrong, "token that was never made": other, "expired": expired, "deleted": deleted, "another secret": hash} {
		t.Run(name, func(t *testing.T) {
			j := f.joiner(token, ours)
			if _, err := j.Keys(within(t)); err == nil || !strings.Contains(err.Error(), ErrToken.Error()) {
				t.Errorf("Keys with a bad token: error = %v, want ErrToken", err)
			}
			if _, err := j.Member(within(t), "second", "192.0.2.2:2380"); err == nil || !strings.Contains(err.Error(), ErrToken.Error()) {
				t.Errorf("Member with a bad token: error = %v, want ErrToken", err)
			}
		})
	}
	if len(f.etcd.asked) > 0 {
		t.Errorf("requests to etcd with bad tokens = %q, want none", f.etcd.asked)
	}
	if bytes.Contains(f.storage.keys[tokenKeys+good.ID], []byte(good.Secret)) {
		t.Error("the stored token contains the secret, want a hash")
	}
	for _, line := range f.logs.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, good.Secret) {
			t.Errorf("the log contains the token: %s, want no secret", text)
		}
	}
	if f.logs.FilterMessage("rejected a request to join the cluster").Len() == 0 {
		t.Error("no log line about a refused request, want at least one")
	}
}

// E18: a joining replica sends its token only to the cluster of the token and trusts only that cluster.
func TestE18JoiningReplicaTrustsOnlyTokenCA(t *testing.T) {
	f := newFixture(t)
	other, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	good := f.token()
	asked := 0
	attacker := func(leaf pki.Leaf, chain ...*pki.Authority) *httptest.Server {
		certPEM, keyPEM, err := chain[0].Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range chain[1:] {
			certPEM = append(certPEM, a.PEM()...)
		}
		pair, err := pki.StaticKeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++ }))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: pair.GetCertificate}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	joining := pki.Leaf{CommonName: ServerName, DNSNames: []string{ServerName}, Server: true}
	for name, s := range map[string]*httptest.Server{
		"another CA":                                 attacker(joining, other, other),
		"another CA that shows the real one":         attacker(joining, other, f.ca),
		"the real CA, for another name":              attacker(pki.Leaf{DNSNames: []string{"kubernetes"}, Server: true}, f.ca, f.ca),
		"the real CA, for a client":                  attacker(pki.Leaf{DNSNames: []string{ServerName}, Client: true}, f.ca, f.ca),
		"the real CA, which is not shown":            attacker(joining, f.ca),
		"the real CA, as a server that is no member": attacker(pki.Leaf{DNSNames: []string{"kubernetes", "localhost"}, Server: true}, f.ca),
	} {
		t.Run(name, func(t *testing.T) {
			j, err := NewJoiner(s.URL, good, ours, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := j.askOnce(ctx, keysPath, []byte("{}"), &keysAnswer{}); err == nil {
				t.Error("askOnce of a false server returned no error, want one")
			}
		})
	}
	if asked > 0 {
		t.Errorf("%d requests with the token reached another server, want 0", asked)
	}
	otherCA := good
	otherCA.CAHash[0]++
	if _, err := f.joiner(otherCA, ours).Keys(within(t)); !errors.Is(err, pki.ErrOtherAuthority) {
		t.Errorf("Keys with a token of another cluster: error = %v, want ErrOtherAuthority", err)
	}
}

// E19: the keys are readable only with the secret, and answer one request.
func TestE19KeysAreSealedForOneRequest(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	token, nonce := NewToken(ca.Certificate), newNonce()
	sealed, err := seal(token, nonce, handedOver)
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := open(token, nonce, sealed); err != nil || string(opened.Files["ca.key"]) != "the key of the CA" {
		t.Fatalf("open = %v, %v; want the key of the CA", opened, err)
	}
	if bytes.Contains(sealed, []byte("the key of")) {
		t.Error("the sealed answer contains the key in plain text, want it encrypted")
	}
	changed := slices.Clone(sealed)
	changed[len(changed)/2] ^= 1
	secret, id, hash := token, token, token
	secret.Secret = strings.Repeat("a", secretLength)
	id.ID = "aaaaaaaa"
	hash.CAHash[3]++
	for name, c := range map[string]struct {
		token         Token
		nonce, sealed []byte
	}{
		"another secret":                {secret, nonce, sealed},
		"another token":                 {id, nonce, sealed},
		"another CA":                    {hash, nonce, sealed},
		"the answer to another request": {token, newNonce(), sealed},
		"cut off":                       {token, nonce, sealed[:len(sealed)-1]},
		"cut off at the beginning":      {token, nonce, sealed[1:]},
		"changed":                       {token, nonce, changed},
		"empty":                         {token, nonce, nil},
	} {
		if _, err := open(c.token, c.nonce, c.sealed); !errors.Is(err, errNotSealed) {
			t.Errorf("open of %s: error = %v, want errNotSealed", name, err)
		}
	}
	if _, err := seal(token, nonce[1:], handedOver); err == nil {
		t.Error("seal with a short nonce returned no error, want one")
	}
}

// An answer that was recorded does not do for another request, over the whole protocol.
func TestReplayedAnswerIsRejected(t *testing.T) {
	f := newFixture(t)
	token := f.token()
	var recorded []byte
	inner := f.http.Config.Handler
	f.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if recorded != nil {
			_, _ = w.Write(recorded)
			return
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		recorded = rec.Body.Bytes()
		w.WriteHeader(rec.Code)
		_, _ = w.Write(recorded)
	})
	if _, err := f.joiner(token, ours).Keys(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.joiner(token, ours).Keys(within(t)); !errors.Is(err, errNotSealed) {
		t.Errorf("Keys with a replayed answer: error = %v, want errNotSealed", err)
	}
}

func TestOtherProtocolVersionsAreRejected(t *testing.T) {
	f := newFixture(t)
	for name, change := range map[string]func(*Versions){
		"etcd is 3.7 in this cluster":                          func(v *Versions) { v.Etcd = "3.6" },
		"Kubernetes is 1.37 in this cluster":                   func(v *Versions) { v.Kubernetes = "1.38" },
		"the form of what Portico stores is 1 in this cluster": func(v *Versions) { v.Storage = 2 },
	} {
		v := ours
		change(&v)
		j := f.joiner(f.token(), v)
		if _, err := j.Keys(within(t)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("keys: %v, want %s", err, name)
		}
		if _, err := j.Member(within(t), "second", "192.0.2.2:2380"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("member: %v, want %s", err, name)
		}
	}
	v := ours
	v.Portico = "v1.0.7"
	if _, err := f.joiner(f.token(), v).Keys(within(t)); err != nil {
		t.Errorf("Keys of another patch release failed: %v, want no error", err)
	}
}

func TestUnreachableMembersAreRejected(t *testing.T) {
	f := newFixture(t)
	j := f.joiner(f.token(), ours)
	for address, want := range map[string]string{
		"127.0.0.1:2380": "--bind-address", "0.0.0.0:2380": "no IP address", "host:2380": "no IP address", "192.0.2.2": "no IP address",
	} {
		if _, err := j.Member(within(t), "second", address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Member with the address %s: error = %v, want %q", address, err, want)
		}
	}
	if _, err := j.Member(within(t), "a=b", "192.0.2.2:2380"); err == nil {
		t.Error("Member with the name a=b returned no error, want one")
	}
}

func TestTokensAreParsed(t *testing.T) {
	ca, err := pki.NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	token := NewToken(ca.Certificate)
	text := token.String()
	if got, err := ParseToken(" " + text + "\n"); err != nil || got != token {
		t.Errorf("ParseToken of a token with spaces = %v, %v; want the token", got, err)
	}
	if NewToken(ca.Certificate).Secret == token.Secret {
		t.Error("two tokens have the same secret, want different ones")
	}
	for _, bad := range []string{
		"", "x", text[1:], text[:len(text)-1], text + "a", strings.ToUpper(text), strings.Replace(text, "join1", "join2", 1), strings.Replace(text, ".", "", 1), text + ".a",
		strings.Replace(text, token.Secret, strings.Repeat("!", secretLength), 1),
	} {
		if _, err := ParseToken(bad); !errors.Is(err, errMalformedToken) || strings.Contains(err.Error(), token.Secret) {
			t.Errorf("ParseToken(%q) error = %v, want errMalformedToken without the secret", bad, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("portico-join1.00.a.b")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err == nil && token.String() != strings.TrimSpace(strings.ToLower(text)) && !strings.EqualFold(token.String(), strings.TrimSpace(text)) {
			t.Errorf("ParseToken(%q) = %q, want the same token", text, token)
		}
	})
}

func TestTokenLifetimeAndCountAreBounded(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for _, ttl := range []time.Duration{-time.Hour, time.Second, maxTTL + 1} {
		if _, _, err := f.tokens.Create(ctx, ttl, ""); !errors.Is(err, ErrTTL) {
			t.Errorf("Create with the lifetime %s: error = %v, want ErrTTL", ttl, err)
		}
	}
	forever, _, err := f.tokens.Create(ctx, 0, "for ever")
	if err != nil {
		t.Fatal(err)
	}
	f.tokens.now = func() time.Time { return time.Now().Add(50 * 365 * 24 * time.Hour) }
	if err := f.tokens.Check(ctx, forever.ID, forever.Secret); err != nil {
		t.Errorf("Check of a token without expiry after 50 years = %v, want no error", err)
	}
	f.tokens.now = time.Now
	day := f.token()
	f.tokens.now = func() time.Time { return time.Now().Add(time.Hour) }
	if err := f.tokens.Check(ctx, day.ID, day.Secret); !errors.Is(err, ErrToken) {
		t.Errorf("Check of an expired token: error = %v, want ErrToken", err)
	}
	for len(f.storage.keys) < maxTokens {
		f.token()
	}
	if _, _, err := f.tokens.Create(ctx, 0, ""); !errors.Is(err, ErrTooManyTokens) {
		t.Errorf("Create of one token too many: error = %v, want ErrTooManyTokens", err)
	}
	if list, err := f.tokens.List(ctx); err != nil || len(list) != maxTokens {
		t.Errorf("List = %d tokens, %v; want %d", len(list), err, maxTokens)
	}
	if err := f.tokens.Delete(ctx, "../../x"); !errors.Is(err, ErrNoToken) {
		t.Errorf("Delete of an invalid ID: error = %v, want ErrNoToken", err)
	}
}

// E20: a client without a token can neither overload the server nor fill its log.
func TestE20AttemptsAreLimited(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	f.server.now = func() time.Time { return now }
	ask := func(remote string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, keysPath, strings.NewReader("{}"))
		r.RemoteAddr = remote
		r.Header.Set("Authorization", "Bearer abcdefgh."+strings.Repeat("a", secretLength))
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		return w
	}
	codes := map[int]int{}
	for range 1000 {
		codes[ask("192.0.2.9:1234").Code]++
	}
	if codes[http.StatusUnauthorized] != attemptsAtOnce || codes[http.StatusTooManyRequests] != 1000-attemptsAtOnce {
		t.Errorf("responses by status = %v, want %d with 401 and the rest with 429", codes, attemptsAtOnce)
	}
	if w := ask("192.0.2.9:99"); w.Header().Get("Retry-After") == "" {
		t.Error("response 429 has no Retry-After, want one")
	}
	if w := ask("192.0.2.10:1234"); w.Code != http.StatusUnauthorized {
		t.Errorf("status for another address = %d, want 401", w.Code)
	}
	if n := f.logs.Len(); n > 200 {
		t.Errorf("%d log lines, want at most 200", n)
	}
	for i := range 2 * limitedAddresses {
		f.server.limit.allow(fmt.Sprint(i), now)
	}
	if n := len(f.server.limit.limiters); n > limitedAddresses {
		t.Errorf("%d addresses in the limiter, want at most %d", n, limitedAddresses)
	}
	now = now.Add(time.Minute)
	if w := ask("192.0.2.11:1"); w.Code != http.StatusUnauthorized {
		t.Errorf("status for a new address after a minute = %d, want 401", w.Code)
	}
}

// E21: every read has a limit, and only the protocol is served.
func TestE21RequestsOutsideProtocolAreRejected(t *testing.T) {
	f := newFixture(t)
	token := f.token()
	for name, c := range map[string]struct {
		method, path, authorization string
		body                        io.Reader
		want                        int
	}{
		"no credential":       {http.MethodPost, keysPath, "", strings.NewReader("{}"), 401},
		"basic":               {http.MethodPost, keysPath, "Basic " + token.credential(), strings.NewReader("{}"), 401},
		"another path":        {http.MethodPost, "/api/v1/secrets", "Bearer " + token.credential(), strings.NewReader("{}"), 404},
		"GET":                 {http.MethodGet, keysPath, "Bearer " + token.credential(), nil, 405},
		"no JSON":             {http.MethodPost, keysPath, "Bearer " + token.credential(), strings.NewReader("x"), 400},
		"no nonce":            {http.MethodPost, keysPath, "Bearer " + token.credential(), strings.NewReader("{}"), 400},
		"a body that is long": {http.MethodPost, membersPath, "Bearer " + token.credential(), strings.NewReader(strings.Repeat(" ", maxRequest+1)), 413},
	} {
		r := httptest.NewRequest(c.method, c.path, c.body)
		r.RemoteAddr = name
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("request (%s): status = %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
}

func TestServerCertificateForJoinsIsRenewed(t *testing.T) {
	f := newFixture(t)
	first, err := f.server.certificate()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.server.certificate(); err != nil || again != first {
		t.Errorf("second certificate is a new one, error %v; want the first one", err)
	}
	f.server.now = func() time.Time { return time.Now().Add(pki.LeafTTL * 3 / 4) }
	if renewed, err := f.server.certificate(); err != nil || renewed.Fingerprint() == first.Fingerprint() {
		t.Errorf("certificate after 3/4 of its lifetime is the first one, error %v; want a new one", err)
	}
}

// A member that is away is waited for; ctx ends the wait.
func TestJoinWaitsForUnavailableMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewAuthority("ca")
		if err != nil {
			t.Fatal(err)
		}
		j, err := NewJoiner("https://192.0.2.1:6443", NewToken(ca.Certificate), ours, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		j.client.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			if tries++; tries < 4 {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"members":{}}`))}, nil
		})
		began := time.Now()
		if _, err := j.Member(t.Context(), "a", "192.0.2.2:1"); err != nil || tries != 4 || time.Since(began) != 3*joinRetry {
			t.Errorf("Member = %v after %d attempts and %s, want no error after 4 attempts and %s", err, tries, time.Since(began), 3*joinRetry)
		}
		tries = -1000
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := j.Member(ctx, "a", "192.0.2.2:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Member until the deadline: error = %v, want DeadlineExceeded", err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAdminManagesMembersAndTokens(t *testing.T) {
	f := newFixture(t)
	admin := NewAdmin(f.etcd, f.tokens, "https://192.0.2.1:6443", zap.NewNop())
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
	if w := ask(http.MethodGet, MembersPath, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"name": "first"`) {
		t.Errorf("GET of the members = %d %s, want 200 and first", w.Code, w.Body)
	}
	var made NewTokenAnswer
	if w := ask(http.MethodPost, TokensPath, `{"description":"x"}`); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &made) != nil || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("POST of a token = %d %s, want 200, JSON and no-store", w.Code, w.Body)
	}
	token, err := ParseToken(made.Token)
	if err != nil || token.ID != made.ID || made.Server != "https://192.0.2.1:6443" || f.tokens.Check(t.Context(), token.ID, token.Secret) != nil {
		t.Errorf("created token is not usable: %v; want one with the ID, the server and a valid secret", err)
	}
	if w := ask(http.MethodGet, TokensPath, ""); !strings.Contains(w.Body.String(), made.ID) || strings.Contains(w.Body.String(), token.Secret) {
		t.Errorf("GET of the tokens = %s, want the ID without the secret", w.Body)
	}
	for _, c := range []struct {
		method, path, body string
		err                error
		want               int
	}{
		{http.MethodDelete, TokensPath + "/" + made.ID, "", nil, 200},
		{http.MethodDelete, TokensPath + "/" + made.ID, "", nil, 404},
		{http.MethodPost, TokensPath, `{"ttlSeconds":1}`, nil, 400},
		{http.MethodPost, TokensPath, `{"ttlSeconds":-1}`, nil, 400},
		{http.MethodPost, TokensPath, `x`, nil, 400},
		{http.MethodPost, MembersPath, "", nil, 405},
		{http.MethodDelete, MembersPath + "/a1", "", nil, 200},
		{http.MethodDelete, MembersPath + "/a1", "", store.ErrNoMember, 404},
		{http.MethodDelete, MembersPath + "/a1", "", store.ErrBusy, 503},
		{http.MethodPost, MembersPath + "/a1/promote", "", nil, 200},
		{http.MethodPost, MembersPath + "/a1/promote", "", store.ErrBusy, 503},
		{http.MethodGet, MembersPath + "/a1", "", nil, 405},
		{http.MethodGet, "/cluster/else", "", nil, 404},
	} {
		f.etcd.change = c.err
		if w := ask(c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("%s %s with %v: %d %s, want %d", c.method, c.path, c.err, w.Code, w.Body, c.want)
		}
	}
}
