package authn

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

var usual = Headers{
	Username:    []string{"X-Remote-User"},
	UID:         []string{"X-Remote-Uid"},
	Group:       []string{"X-Remote-Group"},
	ExtraPrefix: []string{"X-Remote-Extra-"},
}

func TestIdentityHeaders(t *testing.T) {
	tests := []struct {
		name    string
		headers Headers
		in      http.Header
		want    *user.DefaultInfo // nil: no identity
		wantErr string
	}{
		{
			name: "no user header names nobody, whatever else is there",
			in:   http.Header{"X-Remote-Group": {"system:masters"}},
		},
		{
			name: "user, uid, groups of all values, extra",
			in: http.Header{
				"X-Remote-User":        {"alice"},
				"X-Remote-Uid":         {"u-77"},
				"X-Remote-Group":       {"dev", "", "ops"},
				"X-Remote-Extra-Scope": {"a", "b"},
			},
			want: &user.DefaultInfo{Name: "alice", UID: "u-77", Groups: []string{"dev", "ops"},
				Extra: map[string][]string{"scope": {"a", "b"}}},
		},
		{
			name:    "the first user header that is there wins",
			headers: Headers{Username: []string{"X-First", "X-Second"}},
			in:      http.Header{"X-Second": {"bob"}, "X-First": {"alice"}},
			want:    &user.DefaultInfo{Name: "alice"},
		},
		{
			name:    "A7 a user header sent twice is ambiguous",
			in:      http.Header{"X-Remote-User": {"alice", "root"}},
			wantErr: "more than once",
		},
		{
			name: "A8 underscores do not spell a header",
			in:   http.Header{"X_remote_user": {"root"}},
		},
		{
			name: "A11 an escaped capital survives as a capital",
			in:   http.Header{"X-Remote-User": {"alice"}, "X-Remote-Extra-%41bc": {"1"}},
			want: &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"Abc": {"1"}}},
		},
		{
			name: "A11 keys that fold together are joined in a fixed order",
			in:   http.Header{"X-Remote-User": {"alice"}, "X-Remote-Extra-A": {"2"}, "X-Remote-Extra-%61": {"1"}},
			want: &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"a": {"1", "2"}}},
		},
		{
			name: "A11 a malformed escape stands for itself",
			in:   http.Header{"X-Remote-User": {"alice"}, "X-Remote-Extra-%zz": {"1"}},
			want: &user.DefaultInfo{Name: "alice", Extra: map[string][]string{"%zz": {"1"}}},
		},
		{
			name:    "A11 a control character in a key",
			in:      http.Header{"X-Remote-User": {"alice"}, "X-Remote-Extra-A%0ab": {"1"}},
			wantErr: "control character",
		},
		{
			name:    "A11 a megabyte of value",
			in:      http.Header{"X-Remote-User": {"alice"}, "X-Remote-Extra-A": {strings.Repeat("x", 1<<20)}},
			wantErr: "more than",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			headers := tt.headers
			if headers.Username == nil {
				headers = usual
			}
			got, err := headers.identity(tt.in)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("identity() error = %v, want an error that contains %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == nil {
				if got != nil {
					t.Fatalf("identity() = %+v, want nil", got)
				}
				return
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("identity() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestStrip(t *testing.T) {
	custom := usual
	custom.Username = []string{"X-Forwarded-User"}
	r := &http.Request{
		Header: http.Header{
			"X-Remote-User": {"a"}, "X-Remote-Group": {"b"}, "X-Remote-Uid": {"c"}, "X-Remote-Extra-Scope": {"d"},
			"X_remote_user": {"e"}, "X-Remote_group": {"f"}, "X_REMOTE_EXTRA_x": {"g"}, "x-remote-user": {"h"}, "X-Remote-Group ": {"i"},
			"X-Forwarded-User": {"j"}, "X-Forwarded_user": {"k"}, "X.Forwarded!User": {"l"}, "X.remote.user": {"m"}, "X~remote|extra^a": {"n"}, "No token": {"o"},
			"Accept": {"stays"}, "X-Remote-Address": {"stays"},
		},
		Trailer: http.Header{"X-Remote-User": {"a"}, "Checksum": {"stays"}},
	}
	custom.Strip(r)
	want := http.Header{"Accept": {"stays"}, "X-Remote-Address": {"stays"}}
	if !reflect.DeepEqual(r.Header, want) {
		t.Errorf("header after Strip = %v, want %v", r.Header, want)
	}
	if want := (http.Header{"Checksum": {"stays"}}); !reflect.DeepEqual(r.Trailer, want) {
		t.Errorf("trailer after Strip = %v, want %v", r.Trailer, want)
	}
}

// FuzzExtraKey checks that an escaped key is decoded to the original, without a panic.
func FuzzExtraKey(f *testing.F) {
	for _, s := range []string{"", "scope", "Scope/Key", "a%2fb", "%zz", "%", "%4", "Ünï", "x_y", "A", "%41", "a\x00b", "authentication.kubernetes.io/pod-name"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		ExtraKey(key)
		if got := ExtraKey(escapeKey(key)); got != key {
			t.Fatalf("ExtraKey of the escaped key = %q, want %q", got, key)
		}
	})
}

// escapeKey escapes a key like a careful sender: every character except lower-case token characters.
func escapeKey(key string) string {
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		c := key[i]
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
