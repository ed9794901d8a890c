package filters

import (
	"net/http"
	"testing"
)

func TestA30UpgradeChecksOrigin(t *testing.T) {
	allowed := func(origin string) bool { return origin == "https://ui.example.com" }
	for _, test := range []struct {
		origins []string
		want    bool
	}{
		{nil, true},
		{[]string{""}, true},
		{[]string{"https://front.example:6443"}, true},
		{[]string{"wss://FRONT.example:6443"}, true},
		{[]string{"https://ui.example.com"}, true},
		{[]string{"http://localhost"}, true},
		{[]string{"http://localhost:8001"}, true},
		{[]string{"https://LocalHost:8001"}, true},
		{[]string{"ws://localhost:8001"}, true},
		{[]string{"http://127.0.0.1:8001"}, true},
		{[]string{"http://127.1.2.3"}, true},
		{[]string{"http://[::1]:8001"}, true},
		{[]string{"http://[::1]"}, true},
		{[]string{"http://[::ffff:127.0.0.1]"}, true},
		{[]string{"https://console.example", "http://localhost"}, true}, // the OpenShift console
		{[]string{"https://evil.example", "https://ui.example.com"}, true},
		{[]string{"http://localhost", "https://evil.example"}, true},
		{[]string{"https://evil.example", ""}, false},
		{[]string{"https://evil.example", "https://other.example"}, false},
		{[]string{"https://evil.example"}, false},
		{[]string{"https://front.example"}, false},
		{[]string{"http://localhost.evil.example"}, false},
		{[]string{"http://evil.example.localhost.example:8001"}, false},
		{[]string{"http://notlocalhost"}, false},
		{[]string{"http://127.0.0.1.evil.example"}, false},
		{[]string{"http://localhost@evil.example"}, false},
		{[]string{"http://evil@localhost"}, false},
		{[]string{"http://evil.example#localhost"}, false},
		{[]string{"http://evil.example/?http://localhost"}, false},
		{[]string{"http://localhost/"}, false},
		{[]string{"http://localhost:8001/evil"}, false},
		{[]string{"http://localhost, https://evil.example"}, false},
		{[]string{"https://evil.example http://localhost"}, false},
		{[]string{"file://localhost"}, false},
		{[]string{"localhost"}, false},
		{[]string{"//localhost"}, false},
		{[]string{"http://0.0.0.0"}, false},
		{[]string{"http://128.0.0.1"}, false},
		{[]string{"http://[::2]"}, false},
		{[]string{"http://2130706433"}, false},
		{[]string{"null"}, false},
		{[]string{"https://%zz"}, false},
	} {
		r := &http.Request{Host: "front.example:6443", Header: http.Header{"Origin": test.origins}}
		if got := MayUpgrade(r, allowed); got != test.want {
			t.Errorf("MayUpgrade(%q) = %v, want %v", test.origins, got, test.want)
		}
	}
	r := &http.Request{Host: "a", Header: http.Header{"Origin": {"https://ui.example.com"}}}
	if MayUpgrade(r, nil) {
		t.Error("MayUpgrade without allowed origins = true, want false")
	}
}
