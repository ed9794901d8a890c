package semantics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Large responses are compressed for clients that accept it, and small ones are not.
func TestCompression(t *testing.T) {
	s := configMaps(t, "compressed")
	put := func(name string, size int) {
		body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"k":%q}}`, name, strings.Repeat("0123456789abcdef", size/16))
		call(t, http.MethodPost, s.path, []byte(body)).want(http.StatusCreated)
	}
	put("small", 100<<10)
	put("a-large", 200<<10) // the first of all, before kube-root-ca.crt
	for _, c := range []struct {
		path, accept string
		zipped       bool
	}{
		{"/a-large", "gzip", true},
		{"/a-large", "identity", false},
		{"/small", "gzip", false},
		{"", "gzip, deflate, br", true},
		{"?limit=1", "gzip", true},
	} {
		a := call(t, http.MethodGet, s.path+c.path, nil, "Accept-Encoding", c.accept).want(http.StatusOK)
		if zipped := a.header.Get("Content-Encoding") == "gzip"; zipped != c.zipped {
			t.Errorf("GET %q with the Accept-Encoding %q: compressed = %v, %d bytes; want compressed = %v",
				c.path, c.accept, zipped, len(a.body), c.zipped)
		}
		if !c.zipped {
			a.says(`"kind":"ConfigMap`)
			continue
		}
		plain, err := gzip.NewReader(bytes.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(plain); err != nil || !bytes.HasPrefix(text, []byte(`{"kind":"ConfigMap`)) || !strings.Contains(a.header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("decompressed body: %v: %.100s, Vary %q; want a ConfigMap and Accept-Encoding", err, text, a.header.Get("Vary"))
		}
	}
}

// A body has a limit, and so has an object.
func TestLimitsOfBodies(t *testing.T) {
	s := configMaps(t, "limited")
	post := func(size int) *answer {
		return call(t, http.MethodPost, s.path, []byte(`{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("a", size)+`"}}`))
	}
	post(4<<20).refused(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge")
	post(2<<20).refused(http.StatusUnprocessableEntity, "Invalid")
	patch := "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10_001)
	s.put("patched")
	a := call(t, http.MethodPatch, s.path+"/patched", []byte(patch[:len(patch)-1]+"]"), "Content-Type", jsonPatch)
	a.refused(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge")
}
