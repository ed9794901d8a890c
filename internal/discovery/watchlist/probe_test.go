package watchlist

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote/remotetest"
	"portico.dev/internal/transport"
)

const (
	bookmark = `{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"shop.example.com/v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	added    = `{"type":"ADDED","object":{"kind":"Widget","metadata":{"name":"a"},"code":"red","details":[1]}}` + "\n"
	// plainBookmark is a bookmark without the annotation of initial events.
	plainBookmark = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}` + "\n"
)

var widgets = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}

func errorEvent(code int, reason, details string) string {
	return fmt.Sprintf(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q%s}}`, code, reason, details) + "\n"
}

func TestProbeVerdictFollowsResponse(t *testing.T) {
	for _, test := range []struct {
		situation string
		code      int
		body      string
		want      Verdict
	}{
		{"the bookmark", 200, bookmark, Honours},
		{"objects, then the bookmark", 200, added + plainBookmark + added + bookmark, Honours},
		{"the stream ends without events", 200, "", Ignores},
		{"the stream ends after objects", 200, added + added, Ignores},
		{"the stream ends after another bookmark", 200, plainBookmark, Ignores},
		{"the annotation is not true", 200, strings.Replace(bookmark, `"true"`, `"false"`, 1), Ignores},
		{"a list instead of a stream", 200, `{"kind":"WidgetList","items":[]}`, Ignores},
		{"an error event", 200, errorEvent(422, "Invalid", ""), Refuses},
		{"an error event without a status", 200, `{"type":"ERROR","object":"no"}`, Refuses},
		{"the error event of an old resource version", 200, errorEvent(410, "Expired", ""), Ignores},
		{"the error event of a resource version from the future", 200,
			errorEvent(504, "Timeout", `,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}`), Ignores},
		{"422", 422, "", Refuses},
		{"400", 400, "", Refuses},
		{"410", 410, "", Ignores},
		{"401", 401, "", Undetermined},
		{"403", 403, "", Undetermined},
		{"404", 404, "", Undetermined},
		{"405", 405, "", Undetermined},
		{"429", 429, "", Undetermined},
		{"500", 500, "", Undetermined},
		{"503", 503, "", Undetermined},
		{"a page of HTML", 200, "<html>", Undetermined},
		{"a number", 200, "1 2 3", Undetermined},
		{"an event that breaks off", 200, added + added[:20], Undetermined},
		{"an object without end", 200, `{"type":"ADDED","object":"` + strings.Repeat("a", maxProbeBody+1), Undetermined},
		{"objects without end", 200, strings.Repeat(added, maxProbeBody/len(added)+1) + bookmark, Undetermined},
	} {
		t.Run(test.situation, func(t *testing.T) {
			b := remotetest.NewTLS(t, "shop/widgets:443", remotetest.Answers(test.code, "application/json", test.body))
			got, reason := Probe(t.Context(), b.Probe(), widgets)
			if got != test.want || reason == "" {
				t.Errorf("Probe() = %s (%s), want %s", got, reason, test.want)
			}
		})
	}
}

func TestProbeRequestSelectsNothing(t *testing.T) {
	b := remotetest.NewTLS(t, "shop/widgets:443", remotetest.Redirects("https://elsewhere.example.com/"))
	for of, path := range map[schema.GroupVersionResource]string{
		widgets:                         "/apis/shop.example.com/v1/widgets",
		{Version: "v1", Resource: "ps"}: "/api/v1/ps",
	} {
		if got, reason := Probe(t.Context(), b.Probe(), of); got != Undetermined {
			t.Errorf("Probe() of a redirect = %s (%s), want %s", got, reason, Undetermined)
		}
		seen := b.Requests()
		r := seen[len(seen)-1]
		if r.Method != http.MethodGet || r.URL.Path != path || r.URL.RawQuery != "allowWatchBookmarks=true&labelSelector=portico.dev%2Fwatch-probe%3Dnone"+
			"&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=5&watch=true" {
			t.Errorf("request = %s %s, want GET %s with the query of a probe", r.Method, r.URL, path)
		}
		if r.Header.Get("X-Remote-User") != "system:kube-aggregator" || r.Header.Get("X-Remote-Group") != "system:masters" || r.Header.Get("Accept") != "application/json" {
			t.Errorf("headers = %v, want system:kube-aggregator of system:masters and Accept application/json", r.Header)
		}
	}
	if n := len(b.Requests()); n != 2 {
		t.Errorf("%d requests, want 2: redirects are not followed", n)
	}
}

// silent is a server that sends a response and then nothing more. With noResponse it does not even send headers.
type silent struct{ body, noResponse string }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.noResponse != "" {
		<-r.Context().Done()
		return nil, &transport.Error{Op: transport.OpRoundTrip, Sent: s.noResponse == "sent", Err: r.Context().Err()}
	}
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, s.body)
		<-r.Context().Done()
		_ = writer.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: 200, Body: reader}, nil
}

func TestProbeVerdictFollowsSilence(t *testing.T) {
	for _, test := range []struct {
		situation string
		server    silent
		want      Verdict
		after     time.Duration
	}{
		{"a plain watch of nothing", silent{}, Ignores, probeTimeout},
		{"a plain watch of objects", silent{body: added}, Ignores, probeTimeout},
		{"a plain watch with half an event", silent{body: added[:9]}, Ignores, probeTimeout},
		{"headers are not sent before the first event", silent{noResponse: "sent"}, Ignores, probeTimeout},
		{"no connection", silent{noResponse: "not sent"}, Undetermined, probeTimeout},
		{"the bookmark, at once", silent{body: added + bookmark}, Honours, 0},
		{"an error, at once", silent{body: errorEvent(400, "BadRequest", "")}, Refuses, 0},
	} {
		t.Run(test.situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got, reason := Probe(t.Context(), test.server, widgets)
				if took := time.Since(start); got != test.want || took != test.after {
					t.Errorf("Probe() = %s (%s) after %s, want %s after %s", got, reason, took, test.want, test.after)
				}
			})
		})
	}
}

func TestCanceledProbeIsUndetermined(t *testing.T) {
	for situation, server := range map[string]silent{"in the stream": {body: added}, "before headers": {noResponse: "sent"}} {
		t.Run(situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopped, stop := context.WithCancel(t.Context())
				defer stop()
				time.AfterFunc(time.Second, stop)
				if got, reason := Probe(stopped, server, widgets); got != Undetermined {
					t.Errorf("Probe() with a cancelled context = %s (%s), want %s", got, reason, Undetermined)
				}
			})
		})
	}
}
