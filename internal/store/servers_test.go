package store

import (
	"strings"
	"testing"

	"go.uber.org/zap"
)

// E6: stored data crosses no network unencrypted.
func TestE6PlainHTTPIsAllowedOnlyOnLoopback(t *testing.T) {
	for server, refused := range map[string]string{
		"http://127.0.0.1:2379":      "",
		"http://[::1]:2379":          "",
		"http://localhost:2379":      "",
		"unix:///run/etcd.sock":      "",
		"https://etcd.example.com":   "",
		"http://192.0.2.1:2379":      "use https with a CA file and a client certificate",
		"http://etcd.example.com":    "use https with a CA file and a client certificate",
		"http://localhost.evil:2379": "use https with a CA file and a client certificate",
		"http://127.0.0.1.evil:2379": "use https with a CA file and a client certificate",
		"http://0.0.0.0:2379":        "use https with a CA file and a client certificate",
		"http://127.0.0.1@evil:2379": "use https with a CA file and a client certificate",
		"etcd.example.com:2379":      "want a URL",
		"HTTP://192.0.2.1:2379":      "use https with a CA file and a client certificate",
		"tcp://192.0.2.1:2379":       "want a URL",
	} {
		_, err := New(Config{Servers: []string{server}, Logger: zap.NewNop()})
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("New(%s) error = %v, want %q", server, err, refused)
		}
	}
}
