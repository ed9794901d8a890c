package authn

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	encoded := func(token string) string {
		return subprotocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	socket := func(protocols ...string) http.Header {
		return http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": protocols}
	}
	tests := []struct {
		name    string
		header  http.Header
		want    string
		wantErr string
	}{
		{name: "nothing", header: http.Header{}},
		{name: "bearer", header: http.Header{"Authorization": {"Bearer abc"}}, want: "abc"},
		{name: "the scheme in another case, more blanks", header: http.Header{"Authorization": {"  bEARER   abc "}}, want: "abc"},
		{name: "basic credentials are not nothing", header: http.Header{"Authorization": {"Basic YTpi"}}, wantErr: "not of the Bearer scheme"},
		{name: "an empty header", header: http.Header{"Authorization": {""}}, wantErr: "not of the Bearer scheme"},
		{name: "an empty token", header: http.Header{"Authorization": {"Bearer "}}, wantErr: "empty"},
		{name: "a blank inside", header: http.Header{"Authorization": {"Bearer a b"}}, wantErr: "blank"},
		{name: "B11 two headers", header: http.Header{"Authorization": {"Bearer a", "Bearer b"}}, wantErr: "more than one"},
		{name: "B7 a token of 8 MiB", header: http.Header{"Authorization": {"Bearer " + strings.Repeat("a", 8<<20)}}, wantErr: "longer"},
		{name: "A30 token subprotocol beside another", header: socket("v4.channel.k8s.io, " + encoded("abc")), want: "abc"},
		{name: "A30 in two header lines", header: socket(encoded("abc"), "v4.channel.k8s.io"), want: "abc"},
		{name: "A30 alone", header: socket(encoded("abc")), wantErr: "beside"},
		{name: "A30 twice", header: socket(encoded("abc") + ", x, " + encoded("def")), wantErr: "more than one"},
		{name: "A30 padded", header: socket("x, " + subprotocolPrefix + "YQ=="), wantErr: "not valid base64url"},
		{name: "A30 not UTF-8", header: socket("x, " + encoded("\xff\xfe")), wantErr: "not valid base64url"},
		{name: "A30 empty", header: socket("x, " + encoded("")), wantErr: "not valid base64url"},
		{name: "A30 stray bits", header: socket("x, " + subprotocolPrefix + "YR"), wantErr: "not valid base64url"},
		{name: "a subprotocol without a websocket is just a header", header: http.Header{"Sec-Websocket-Protocol": {"x, " + encoded("abc")}}},
		{name: "B11 header and subprotocol", header: func() http.Header {
			h := socket("x, " + encoded("abc"))
			h.Set("Authorization", "Bearer abc")
			return h
		}(), wantErr: "more than one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := Token(&http.Request{Header: tt.header})
			switch {
			case tt.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("Token() error = %v, want an error that contains %q", err, tt.wantErr)
				}
				if strings.Contains(err.Error(), "abc") || strings.Contains(err.Error(), "YTpi") {
					t.Fatalf("Token() error = %v, want no credential in it", err)
				}
			case err != nil:
				t.Fatal(err)
			case got != tt.want || ok != (tt.want != ""):
				t.Fatalf("Token() = %q, %t, want %q", got, ok, tt.want)
			}
		})
	}
}

func TestStripToken(t *testing.T) {
	h := http.Header{
		"Authorization":          {"Bearer abc"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io, " + subprotocolPrefix + "YWJj", "v4.channel.k8s.io"},
	}
	stripToken(h)
	if got := h.Get("Sec-Websocket-Protocol"); got != "v5.channel.k8s.io, v4.channel.k8s.io" {
		t.Errorf("subprotocols after stripToken = %q, want v5.channel.k8s.io, v4.channel.k8s.io", got)
	}
	if len(h["Authorization"]) != 0 {
		t.Errorf("Authorization after stripToken = %d values, want none", len(h["Authorization"]))
	}
	t.Run("subprotocols without a token are not touched", func(t *testing.T) {
		h := http.Header{"Sec-Websocket-Protocol": {"a,b", "c"}}
		stripToken(h)
		if lines := h["Sec-Websocket-Protocol"]; len(lines) != 2 || lines[0] != "a,b" {
			t.Errorf("subprotocols without a token after stripToken = %q, want them unchanged", lines)
		}
	})
}
