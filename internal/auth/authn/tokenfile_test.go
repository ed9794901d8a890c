package authn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestLoadTokenFile(t *testing.T) {
	tests := []struct {
		name    string
		text    string
		token   string
		want    *user.DefaultInfo
		wantErr string
	}{
		{name: "three fields", text: "t1,alice,u-1\n", token: "t1", want: &user.DefaultInfo{Name: "alice", UID: "u-1", Groups: []string{"system:authenticated"}}},
		{name: "groups", text: "t1,alice,u-1,\"a, b\"\n", token: "t1", want: &user.DefaultInfo{Name: "alice", UID: "u-1", Groups: []string{"a", "b", "system:authenticated"}}},
		{name: "no uid", text: "t1,alice,\n", token: "t1", want: &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}},
		{name: "a token that is not in it", text: "t1,alice,u-1\n", token: "t2"},
		{name: "the beginning of a token", text: "t1,alice,u-1\n", token: "t"},
		{name: "an empty file", text: "", token: ""},
		{name: "two fields", text: "t1,alice,u-1\nsecret2,bob\n", wantErr: "line 2: has 2 fields"},
		{name: "no token", text: "\n\n,alice,u-1\n", wantErr: "line 3: has no token"},
		{name: "no user", text: "secret1,,u-1\n", wantErr: "line 1: has no user name"},
		{name: "the same token twice", text: "secret1,alice,1\nsecret1,bob,2\n", wantErr: "line 2: repeats a token"},
		{name: "a quote that does not end", text: "t1,alice,1\nsecret2,\"bob,2\n", wantErr: "line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tokens, err := LoadTokenFile(tokenFileWith(t, tt.text))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("LoadTokenFile error = %v, want an error that contains %q", err, tt.wantErr)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Fatalf("LoadTokenFile error = %v, want no token in it", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			response, ok, err := tokens.AuthenticateToken(t.Context(), tt.token)
			if err != nil || ok != (tt.want != nil) {
				t.Fatalf("AuthenticateToken(%q) = %t, %v, want user %v", tt.token, ok, err, tt.want)
			}
			if ok && !reflect.DeepEqual(response.User, tt.want) {
				t.Fatalf("user of %q = %+v, want %+v", tt.token, response.User, tt.want)
			}
		})
	}
}

func TestTokenFileIsReloadedOnChange(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tokens.csv")
	write := func(text string) {
		t.Helper()
		// In one step: an empty file, which exists after the first half of a write, is a valid file without tokens.
		if err := errors.Join(os.WriteFile(name+".next", []byte(text), 0o600), os.Rename(name+".next", name)); err != nil {
			t.Fatal(err)
		}
	}
	write("first,alice,1\n")
	core, logs := observer.New(zap.InfoLevel)
	a, err := New(Config{TokenFile: name, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	good := func(token string) bool {
		_, ok, _ := a.AuthenticateToken(t.Context(), token)
		return ok
	}
	// edit writes the file until the edit is in effect: the first write may precede the watch.
	edit := func(text string, seen func() bool) {
		t.Helper()
		deadline := time.After(3 * time.Minute) // without inotify instances, the file is read every minute
		for !seen() {
			write(text)
			select {
			case <-deadline:
				t.Fatalf("edit to %q was not in effect after 3 minutes, stale %v, want it in effect", text, a.Stale())
			case <-time.After(300 * time.Millisecond):
			}
		}
	}

	edit("second,bob,2\nthird,carol,3\n", func() bool { return good("second") })
	if good("first") {
		t.Error("B12: removed token is still accepted, want it rejected")
	}
	edit("broken\n", func() bool { return a.Stale() != nil })
	if !good("second") {
		t.Error("token second is rejected after a broken edit, want the last good tokens kept")
	}
	if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
		t.Errorf("%d error lines about one broken file, want 1", n)
	}
	edit("fourth,dora,4\n", func() bool { return a.Stale() == nil })
	if !good("fourth") {
		t.Error("token of the repaired file is rejected, want it accepted")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
