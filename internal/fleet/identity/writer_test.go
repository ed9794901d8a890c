package identity

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
)

// subprotocol returns the WebSocket subprotocol that carries a token.
func subprotocol(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

var upgradeLines = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}

// hostileHeaders are headers by which a client tries to get another identity at the cluster.
var hostileHeaders = map[string][]string{
	"impersonation": {"Impersonate-User: admin", "Impersonate-Uid: 0", "Impersonate-Group: system:masters", "Impersonate-Extra-Scopes: all"},
	"impersonation in another case": {"impersonate-user: admin", "IMPERSONATE-GROUP: system:masters", "impersonate-extra-x: y",
		"iMPERSONATE-uID: 0"},
	"impersonation with other separators": {"Impersonate_User: admin", "Impersonate.Group: system:masters", "Impersonate_Extra-x: y"},
	"unknown impersonation":               {"Impersonate-Groups: system:masters", "Impersonate-Extra-: x", "Impersonate-Extra-%53copes%2fKey: all"},
	"front proxy":                         {"X-Remote-User: admin", "X-Remote-Uid: 0", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all"},
	"front proxy in another case":         {"x-remote-user: admin", "X-REMOTE-GROUP: system:masters", "x-remote-extra-x: y"},
	"front proxy with other separators":   {"X_Remote_User: admin", "X.Remote-Group: system:masters", "x_remote_extra_x: y"},
	"token":                               {"Authorization: Bearer " + adminToken},
	"token in another case":               {"authorization: bearer " + adminToken},
	"two tokens":                          {"Authorization: Bearer " + adminToken, "Authorization: Bearer " + robotToken},
	"password":                            {"Authorization: Basic YWRtaW46YWRtaW4="},
	"proxy credentials and cookie":        {"Proxy-Authorization: Bearer " + adminToken, "Cookie: session=1"},
	"nominated identity":                  {"Connection: Impersonate-User, Impersonate-Group, X-Remote-User, X-Remote-Group, Authorization"},
	"nominated restrictions":              {"Connection: Impersonate-Extra-Scopes%2fKey, X-Remote-Extra-%53copes%2FKey, Impersonate-Uid"},
	"identity as trailer": {"Transfer-Encoding: chunked", "Trailer: Impersonate-Group, X-Remote-Group", "", "0",
		"Impersonate-Group: system:masters", "X-Remote-Group: system:masters", "", ""},
	"token as subprotocol":                slices.Concat(upgradeLines, []string{"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + subprotocol(adminToken)}),
	"token as subprotocol, another case":  slices.Concat(upgradeLines, []string{"Sec-WebSocket-Protocol: v5.channel.k8s.io, BASE64URL.bearer" + subprotocol(adminToken)[16:]}),
	"upgrade that nominates the identity": slices.Concat([]string{"Connection: Impersonate-User, X-Remote-User, Authorization"}, upgradeLines),
}

// TestA59ClientHeadersDoNotChangeTheUser sends hostile requests through the proxy to an API server with kube-apiserver's decoders.
func TestA59ClientHeadersDoNotChangeTheUser(t *testing.T) {
	rules := Rules{UserPrefix: "front:", GroupPrefix: "front:"}
	for _, mode := range []v1alpha1.IdentityMode{v1alpha1.Impersonate, v1alpha1.FrontProxy} {
		f := newFront(t, mode, rules)
		want, err := rules.Of(f.user)
		if err != nil {
			t.Fatal(err)
		}
		written := http.Header{}
		names := proxy.RequestHeaders
		if mode == v1alpha1.Impersonate {
			names = impersonationHeaders
			written.Set("Authorization", "Bearer "+frontToken)
		}
		if err := proxy.WriteIdentity(written, names, want); err != nil {
			t.Fatal(err)
		}
		written = onWire(t, written)
		for name, lines := range hostileHeaders {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				code := f.send(t, lines...)
				users, headers := f.taken()
				if code != http.StatusTeapot || len(users) != 1 {
					t.Fatalf("status %d with %d requests at the cluster, want %d and 1", code, len(users), http.StatusTeapot)
				}
				if !sameUser(users[0], want) {
					t.Errorf("user at the cluster = %+v, want %+v", users[0], want)
				}
				checkIdentity(t, headers[0], written)
			})
		}
	}
}

// checkIdentity checks that the credentials and identity headers that arrived are those that were written.
func checkIdentity(t *testing.T, arrived, written http.Header) {
	t.Helper()
	fold := strings.NewReplacer("_", "-", ".", "-")
	for name, values := range arrived {
		folded := fold.Replace(strings.ToLower(name))
		credential := folded == "authorization" || folded == "proxy-authorization" || folded == "cookie"
		if !credential && !strings.HasPrefix(folded, "impersonate-") && !strings.HasPrefix(folded, "x-remote-") {
			if joined := strings.Join(values, ","); strings.Contains(strings.ToLower(joined), "bearer.authorization") {
				t.Errorf("header %s at the cluster = %q, want no token", name, values)
			}
			continue
		}
		if !slices.Equal(values, written[name]) {
			t.Errorf("header %s at the cluster = %q, want %q", name, values, written[name])
		}
	}
	for name := range written {
		if _, ok := arrived[name]; !ok {
			t.Errorf("header %s is missing at the cluster, want %q", name, written[name])
		}
	}
}

// TestA59UnsendableUsersAreNotForwarded checks that the request of a user without a safe encoding reaches no API server.
func TestA59UnsendableUsersAreNotForwarded(t *testing.T) {
	many := make([]string, 20_000)
	for i := range many {
		many[i] = fmt.Sprintf("group-%d-%s", i, strings.Repeat("x", 40))
	}
	for name, tt := range map[string]struct {
		user user.DefaultInfo
		want int
	}{
		"service account of the front door": {user.DefaultInfo{Name: "system:serviceaccount:kube-system:x"}, http.StatusForbidden},
		"system name after a blank":         {user.DefaultInfo{Name: " system:admin"}, http.StatusBadRequest},
		"system group after a blank":        {user.DefaultInfo{Name: "a", Groups: []string{" system:masters"}}, http.StatusBadRequest},
		"system group after a tab":          {user.DefaultInfo{Name: "a", Groups: []string{"\tsystem:masters"}}, http.StatusBadRequest},
		"line break in the name":            {user.DefaultInfo{Name: "a\r\nImpersonate-Group: system:masters"}, http.StatusBadRequest},
		"line break in the UID":             {user.DefaultInfo{Name: "a", UID: "1\nImpersonate-User: admin"}, http.StatusBadRequest},
		"NUL in extra":                      {user.DefaultInfo{Name: "a", Extra: map[string][]string{"k": {"\x00"}}}, http.StatusBadRequest},
		"more than a megabyte of groups":    {user.DefaultInfo{Name: "a", Groups: many}, http.StatusRequestHeaderFieldsTooLarge},
	} {
		for _, mode := range []v1alpha1.IdentityMode{v1alpha1.Impersonate, v1alpha1.FrontProxy} {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				f := newFront(t, mode, Rules{})
				f.user = &tt.user
				code := f.send(t, "Accept: application/json")
				if users, _ := f.taken(); code != tt.want || len(users) != 0 {
					t.Errorf("status %d with %d requests at the cluster, want %d and none", code, len(users), tt.want)
				}
			})
		}
	}
}

// TestA59UsersOfBothKindsAreKeptApart checks that a user of the cluster is not sent as one of the front door, and vice versa.
func TestA59UsersOfBothKindsAreKeptApart(t *testing.T) {
	token := robotToken
	ofCluster := &tokenUser{&user.DefaultInfo{Name: "alice"}, &token}
	ofFront := &user.DefaultInfo{Name: "alice"}
	for name, tt := range map[string]struct {
		writer Writer
		user   user.Info
		ok     bool
	}{
		"user of the cluster, impersonated":   {Impersonation(Rules{}), ofCluster, false},
		"user of the cluster, front proxy":    {FrontProxy(Rules{}), ofCluster, false},
		"user of the front door, by token":    {Token(), ofFront, false},
		"user of the cluster, by token":       {Token(), ofCluster, true},
		"user of the front door, front proxy": {FrontProxy(Rules{}), ofFront, true},
	} {
		r := filters.RequestOf(httptest.NewRequest(http.MethodGet, "/api", nil))
		r.User = tt.user
		header := http.Header{}
		if err := tt.writer(header, r); (err == nil) != tt.ok || !tt.ok && len(header) != 0 {
			t.Errorf("%s: error %v and header %v, want success %t, and no header without it", name, err, header, tt.ok)
		}
	}
	if printed := fmt.Sprintf("%v %+v %#v", ofCluster, ofCluster, *ofCluster); strings.Contains(printed, token) {
		t.Errorf("printed user = %s, want no token", printed)
	}
}

// TestTokenIsForwarded checks that the cluster receives the client's own token and impersonation, and nothing of the front door.
func TestTokenIsForwarded(t *testing.T) {
	f := newFront(t, v1alpha1.Impersonate, Rules{})
	f.policy = v1alpha1.AllTokens
	for name, tt := range map[string]struct {
		lines []string
		want  map[string]string // by header
		code  int
	}{
		"header": {[]string{"authorization: bearer " + robotToken}, map[string]string{"Authorization": "Bearer " + robotToken}, http.StatusTeapot},
		"subprotocol": {slices.Concat(upgradeLines, []string{"Sec-WebSocket-Protocol: v5.channel.k8s.io, " + subprotocol(robotToken)}),
			map[string]string{"Authorization": "Bearer " + robotToken, "Sec-Websocket-Protocol": "v5.channel.k8s.io"}, http.StatusTeapot},
		"identity of a front proxy": {[]string{"Authorization: Bearer " + robotToken, "X-Remote-User: admin", "X-Remote-Group: system:masters"},
			map[string]string{"Authorization": "Bearer " + robotToken}, http.StatusTeapot},
		"impersonation is for the cluster to decide": {[]string{"Authorization: Bearer " + robotToken, "Impersonate-User: admin", "impersonate_group: system:masters"},
			nil, http.StatusForbidden},
		"unknown token":          {[]string{"Authorization: Bearer x"}, nil, http.StatusUnauthorized},
		"token with a blank":     {slices.Concat(upgradeLines, []string{"Sec-WebSocket-Protocol: a, " + subprotocol(robotToken+oddSuffixes[0])}), nil, http.StatusUnauthorized},
		"token with a line feed": {slices.Concat(upgradeLines, []string{"Sec-WebSocket-Protocol: a, " + subprotocol(robotToken+oddSuffixes[1])}), nil, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			code := f.send(t, tt.lines...)
			users, headers := f.taken()
			if code != tt.code || len(users) != min(1, len(tt.want)) {
				t.Fatalf("status %d with %d requests at the cluster, want %d and %d", code, len(users), tt.code, min(1, len(tt.want)))
			}
			if tt.want == nil {
				return
			}
			got := map[string]string{}
			for header, values := range headers[0] {
				if header == "Authorization" || header == "Sec-Websocket-Protocol" || strings.HasPrefix(header, "X-Remote") || strings.HasPrefix(header, "Imp") {
					got[header] = strings.Join(values, "|")
				}
			}
			if !maps.Equal(got, tt.want) || users[0].GetName() != "system:serviceaccount:ns:robot" {
				t.Errorf("user %s with the header %q, want robot and %q", users[0].GetName(), got, tt.want)
			}
		})
	}
}

// API servers ignore the user in X-Remote headers of a request with a token, which would then act as the front door itself.
func TestAFrontProxySendsNoToken(t *testing.T) {
	r := &filters.Request{User: &user.DefaultInfo{Name: "alice"}}
	header := http.Header{"Authorization": {"Bearer " + frontToken}}
	if err := FrontProxy(Rules{})(header, r); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "requires a certificate") {
		t.Errorf("the identity beside a token: %v, want a refusal with 503 that requires a certificate", err)
	}
}
