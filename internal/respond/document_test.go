package respond

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const plainBody = "the plain body, the plain body, the plain body"

func packedBody(t testing.TB) []byte {
	t.Helper()
	packed, err := Pack([]byte(plainBody), gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// In the table, want is the response in one line: code, Vary, Content-Encoding, Content-Length, body. "-" is an absent header.
func TestDocument(t *testing.T) {
	packed := packedBody(t)
	both := Document{ETag: `"A"`, ContentType: "text/x", Vary: "Accept", Plain: []byte(plainBody), Gzip: packed}
	small := both
	small.Gzip = nil
	onlyPacked := both
	onlyPacked.Plain = nil
	made := onlyPacked
	made.Gzip, made.MakeGzip = nil, func() ([]byte, error) { return packed, nil }
	alone := small
	alone.Vary = ""

	const (
		varies     = "Accept,Accept-Encoding"
		isPlain    = " - 46 plain"
		isGzip     = " gzip N packed"
		isUnpacked = " - - plain"
	)
	for _, c := range []struct {
		name                       string
		document                   Document
		method, accepts, noneMatch string
		want                       string
	}{
		{"both, nothing accepted", both, "GET", "", "", "200 " + varies + isPlain},
		{"both, gzip", both, "GET", "gzip", "", "200 " + varies + isGzip},
		{"both, gzip among others", both, "GET", "br, GZIP;q=0.1", "", "200 " + varies + isGzip},
		{"both, anything", both, "GET", "*", "", "200 " + varies + isGzip},
		{"both, gzip refused", both, "GET", "gzip;q=0", "", "200 " + varies + isPlain},
		{"both, gzip refused in another way", both, "GET", "gzip; q=0.000", "", "200 " + varies + isPlain},
		{"both, a weight that is none", both, "GET", "gzip;q=high", "", "200 " + varies + isPlain},
		{"both, another coding", both, "GET", "br, identity", "", "200 " + varies + isPlain},
		{"both, HEAD", both, "HEAD", "", "", "200 " + varies + " - 46 empty"},
		{"both, HEAD with gzip", both, "HEAD", "gzip", "", "200 " + varies + " gzip N empty"},

		{"small, gzip", small, "GET", "gzip", "", "200 Accept" + isPlain},
		{"small, HEAD", small, "HEAD", "gzip", "", "200 Accept - 46 empty"},
		{"of one media type", alone, "GET", "gzip", "", "200 -" + isPlain},

		{"only packed", onlyPacked, "GET", "", "", "200 " + varies + isUnpacked},
		{"only packed, gzip", onlyPacked, "GET", "gzip", "", "200 " + varies + isGzip},
		{"only packed, HEAD", onlyPacked, "HEAD", "", "", "200 " + varies + " - - empty"},
		{"only packed, HEAD with gzip", onlyPacked, "HEAD", "gzip", "", "200 " + varies + " gzip N empty"},
		{"made when needed", made, "GET", "", "", "200 " + varies + isUnpacked},
		{"made when needed, gzip", made, "GET", "gzip", "", "200 " + varies + isGzip},

		{"the client has it", both, "GET", "gzip", `"A"`, "304 " + varies + " - - empty"},
		{"the client has it, HEAD", both, "HEAD", "", `"A"`, "304 " + varies + " - - empty"},
		{"the client has it, weak", both, "GET", "", `W/"A"`, "304 " + varies + " - - empty"},
		{"the client has it among others", both, "GET", "", `"B", "A"`, "304 " + varies + " - - empty"},
		{"the client has anything", both, "GET", "", `*`, "304 " + varies + " - - empty"},
		{"the client has another", both, "GET", "gzip", `"B"`, "200 " + varies + isGzip},
		{"the client has a small one", small, "GET", "gzip", `"A"`, "304 Accept - - empty"},
		{"the client has one of one media type", alone, "GET", "gzip", `"A"`, "304 - - - empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "/", nil)
			r.Header.Set("Accept-Encoding", c.accepts)
			r.Header.Set("If-None-Match", c.noneMatch)
			w := httptest.NewRecorder()
			c.document.Serve(w, r)
			h := w.Header()
			or := func(v string) string {
				if v == "" {
					return "-"
				}
				return v
			}
			body := map[string]string{"": "empty", plainBody: "plain", string(packed): "packed"}[w.Body.String()]
			length := strings.Replace(or(h.Get("Content-Length")), fmt.Sprint(len(packed)), "N", 1)
			got := fmt.Sprintf("%d %s %s %s %s", w.Code, or(strings.Join(h.Values("Vary"), ",")), or(h.Get("Content-Encoding")), length, body)
			if got != c.want {
				t.Errorf("response = %s, want %s", got, c.want)
			}
			if wantType := c.want[:3] == "200"; h.Get("ETag") != `"A"` || (h.Get("Content-Type") == "text/x") != wantType {
				t.Errorf("ETag = %q with the Content-Type %q, want \"A\", and text/x only for 200 (%t)", h.Get("ETag"), h.Get("Content-Type"), wantType)
			}
		})
	}
}

func TestDocumentCacheControl(t *testing.T) {
	for own, want := range map[string]string{"": "no-cache, private", "public": "public"} {
		for _, noneMatch := range []string{"", "*"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("If-None-Match", noneMatch)
			w.Header().Set("Cache-Control", "no-cache, private")
			w.Header().Set("Vary", "Origin")
			(&Document{ETag: `"A"`, CacheControl: own, Vary: "Accept", Plain: []byte("x")}).Serve(w, r)
			if got := w.Header().Get("Cache-Control"); got != want {
				t.Errorf("Cache-Control = %q, want %q", got, want)
			}
			if got := fmt.Sprint(w.Header().Values("Vary")); got != "[Origin Accept]" {
				t.Errorf("Vary = %s, want [Origin Accept]", got)
			}
		}
	}
}

// If a body cannot be made, the response is an error without the document's header fields, unless the client has the document.
func TestFailedDocumentReturnsErrorWithoutItsFields(t *testing.T) {
	for name, d := range map[string]Document{
		"making fails":   {MakeGzip: func() ([]byte, error) { return nil, errors.New("cannot make it") }},
		"is not packed":  {Gzip: []byte("not gzip")},
		"makes no bytes": {MakeGzip: func() ([]byte, error) { return nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			d.ETag, d.ContentType, d.CacheControl = `"A"`, "text/x", "public, immutable"
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			d.Serve(w, r)
			h := w.Header()
			if w.Code != http.StatusInternalServerError || h.Get("ETag") != "" || h.Get("Cache-Control") != "no-cache, private" || h.Get("Content-Type") != MediaJSON {
				t.Errorf("response = %d with the header %v, want 500 without the document's fields", w.Code, h)
			}
			if !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("body of the error = %s, want a Status", w.Body)
			}
			r.Header.Set("If-None-Match", `"A"`)
			w = httptest.NewRecorder()
			if d.Serve(w, r); w.Code != http.StatusNotModified {
				t.Errorf("response to a client with the document = %d, want 304", w.Code)
			}
		})
	}
}

func TestPack(t *testing.T) {
	for _, level := range []int{gzip.BestSpeed, gzip.DefaultCompression, gzip.BestCompression} {
		packed, err := Pack([]byte(plainBody), level)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(unpacked); err != nil || string(body) != plainBody {
			t.Errorf("body unpacked at level %d = %q with the error %v, want %q", level, body, err, plainBody)
		}
	}
	if _, err := Pack(nil, 100); err == nil {
		t.Error("Pack at the level 100 succeeded, want an error")
	}
	if got := Hash(nil); len(got) != 128 || !strings.HasPrefix(got, "CF83E135") {
		t.Errorf("Hash(nil) = %s, want 128 digits that begin with CF83E135", got)
	}
}

// The kept bodies of a thousand backends have no spare capacity, and share one compressor.
func TestPackedBodiesHaveNoSpareCapacity(t *testing.T) {
	for level := gzip.HuffmanOnly; level <= gzip.BestCompression; level++ {
		for _, body := range []string{strings.Repeat("a body, ", 4000), "short", strings.Repeat("another one: ", 3000)} {
			packed, err := Pack([]byte(body), level)
			if err != nil {
				t.Fatal(err)
			}
			if spare := cap(packed) - len(packed); spare > len(packed)/4+16 { // size classes round up
				t.Errorf("spare capacity at level %d = %d of %d bytes, want at most %d", level, spare, cap(packed), len(packed)/4+16)
			}
			r, err := Unpack(packed)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != body {
				t.Errorf("body unpacked at level %d = %d bytes with the error %v, want %d", level, len(got), err, len(body))
			}
		}
	}
	if _, err := Pack([]byte("a body"), gzip.BestCompression+1); err == nil {
		t.Error("Pack at a level that does not exist succeeded, want an error")
	}
}
