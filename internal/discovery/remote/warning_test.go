package remote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/net"

	"portico.dev/internal/respond"
)

var since = time.Date(2026, 11, 23, 18, 0, 0, 5, time.FixedZone("", 3600))

func unavailable(name string) StaleAPIService {
	return StaleAPIService{Name: name, Unavailable: true, Reason: "FailedDiscoveryCheck", Since: since}
}

// read returns the text that a client prints for the header.
func read(t *testing.T, header string) string {
	t.Helper()
	warnings, errs := net.ParseWarningHeaders([]string{header})
	if len(errs) > 0 || len(warnings) != 1 || warnings[0].Code != 299 || warnings[0].Agent != "-" {
		t.Fatalf("warnings of %q = %v, errors %v, want one of code 299 and agent -", header, warnings, errs)
	}
	return warnings[0].Text
}

func TestWarningText(t *testing.T) {
	for name, c := range map[string]struct {
		stale []StaleAPIService
		want  string
	}{
		"unavailable": {
			[]StaleAPIService{unavailable("v1.widgets.example.com")},
			"APIService v1.widgets.example.com is unavailable (FailedDiscoveryCheck since 2026-11-23T17:00:00Z): its resources are left out",
		},
		"unavailable since nobody knows when": {
			[]StaleAPIService{{Name: "v1.a", Unavailable: true, Reason: "ServiceNotFound"}},
			"APIService v1.a is unavailable (ServiceNotFound): its resources are left out",
		},
		"unavailable for no reason": {
			[]StaleAPIService{{Name: "v1.a", Unavailable: true}}, "APIService v1.a is unavailable: its resources are left out",
		},
		"available, and its documents lack something": {
			[]StaleAPIService{{Name: "v1.a", Reason: "the backend suddenly leaves out widgets, which is not confirmed yet"}},
			"APIService v1.a is stale (the backend suddenly leaves out widgets, which is not confirmed yet): its resources are left out",
		},
		"text of a backend": {
			[]StaleAPIService{{Name: "v1.a", Reason: "resource \"\r\nX: 1\u2028\\\" is bad"}},
			`APIService v1.a is stale (resource "??X: 1?\" is bad): its resources are left out`,
		},
		"long text of a backend": {
			[]StaleAPIService{{Name: "v1.a", Reason: strings.Repeat("x", 5000)}},
			"APIService v1.a is stale (" + strings.Repeat("x", 120) + "...): its resources are left out",
		},
		"two": {
			[]StaleAPIService{unavailable("v1.a"), unavailable("v1.b")},
			"APIService v1.a is unavailable (FailedDiscoveryCheck since 2026-11-23T17:00:00Z); APIService v1.b is unavailable (FailedDiscoveryCheck since 2026-11-23T17:00:00Z): their resources are left out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWarning(c.stale)
			if got := read(t, w.header); got != c.want || w.Text() != c.want {
				t.Errorf("warning = %s, want %s", got, c.want)
			}
		})
	}
}

func TestWarningIsTruncated(t *testing.T) {
	for _, length := range []int{10, 60, 253} {
		var stale []StaleAPIService
		for i := range 1000 {
			stale = append(stale, unavailable(fmt.Sprintf("v%03d.%s", i, strings.Repeat("x", length-5))))
		}
		text := read(t, NewWarning(stale).header)
		named := strings.Count(text, "APIService ")
		if named < 1 || named > 5 || len(text) > 560 || !strings.Contains(text, fmt.Sprintf("; and %d more: their", 1000-named)) {
			t.Errorf("names of %d bytes: %d of 1000 named in %d bytes, want 1 to 5 in at most 560 bytes and the number of the others: %s", length, named, len(text), text)
		}
	}
	if named := strings.Count(NewWarning([]StaleAPIService{unavailable("v1.a"), unavailable("v1.b"), unavailable("v1.c"), unavailable("v1.d"), unavailable("v1.e")}).Text(), "APIService "); named != 5 {
		t.Errorf("%d of five are named, want 5", named)
	}
}

func TestServeWithWarning(t *testing.T) {
	d := &respond.Document{ETag: `"x"`, ContentType: "application/json", Plain: []byte("{}")}
	none, one, other := NewWarning(nil), NewWarning([]StaleAPIService{unavailable("v1.a")}), NewWarning([]StaleAPIService{unavailable("v1.b")})
	for name, c := range map[string]struct {
		warning  *Warning
		held     string
		code     int
		warnings int
		tag      string
	}{
		"nothing to warn of":                       {none, "", 200, 0, `"x"`},
		"nothing to warn of, held":                 {none, `"x"`, 304, 0, `"x"`},
		"nothing to warn of any more":              {none, one.ETag(`"x"`), 200, 0, `"x"`},
		"warned":                                   {one, "", 200, 1, one.ETag(`"x"`)},
		"held with no warning":                     {one, `"x"`, 200, 1, one.ETag(`"x"`)},
		"held with the warning":                    {one, one.ETag(`"x"`), 304, 0, one.ETag(`"x"`)},
		"held with the warning, weakened by a hop": {one, "W/" + one.ETag(`"x"`), 304, 0, one.ETag(`"x"`)},
		"held with another warning":                {one, other.ETag(`"x"`), 200, 1, one.ETag(`"x"`)},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			if c.held != "" {
				r.Header.Set("If-None-Match", c.held)
			}
			c.warning.Serve(w, r, d)
			if w.Code != c.code || len(w.Header()["Warning"]) != c.warnings || w.Header().Get("ETag") != c.tag {
				t.Errorf("response = %d with %v, want %d, %d warnings and ETag %s", w.Code, w.Header(), c.code, c.warnings, c.tag)
			}
			if d.ETag != `"x"` {
				t.Errorf("ETag of the document = %s, want it unchanged", d.ETag)
			}
		})
	}
}

// Replicas have the same tag, although each of them detected the outage separately. A client that keeps a warning for a long
// time does not keep a wrong one.
func TestWarningTagIsEqualOnAllReplicas(t *testing.T) {
	tag := func(change func(*StaleAPIService), more ...StaleAPIService) string {
		s := StaleAPIService{Name: "v1.a", Unavailable: true, Reason: "FailedDiscoveryCheck", Since: since}
		if change != nil {
			change(&s)
		}
		return NewWarning(append([]StaleAPIService{s}, more...)).ETag(`"x"`)
	}
	same := tag(nil)
	if got := tag(func(s *StaleAPIService) { s.Since = since.Add(3 * time.Second) }); got != same {
		t.Errorf("tag seconds later = %s, want %s", got, same)
	}
	for name, got := range map[string]string{
		"another APIService": tag(func(s *StaleAPIService) { s.Name = "v1.b" }),
		"another reason":     tag(func(s *StaleAPIService) { s.Reason = "ServiceNotFound" }),
		"another outage":     tag(func(s *StaleAPIService) { s.Since = since.Add(time.Hour) }),
		"stale only":         tag(func(s *StaleAPIService) { s.Unavailable = false }),
		"one more":           tag(nil, unavailable("v1.b")),
		"one more unnamed":   tag(nil, make([]StaleAPIService, 7)...),
		"two more unnamed":   tag(nil, make([]StaleAPIService, 8)...),
		"no warning":         `"x"`,
	} {
		if got == same {
			t.Errorf("%s: tag = %s, want another one", name, got)
		}
	}
	if tag(nil, make([]StaleAPIService, 7)...) == tag(nil, make([]StaleAPIService, 8)...) {
		t.Error("tags for seven and eight unnamed APIServices are equal, want different tags")
	}
}
