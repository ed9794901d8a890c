package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portico.dev/internal/extserver/httpclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, h http.HandlerFunc, change ...func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	config := Config{URL: server.URL + "/prefix/", Timeout: 30 * time.Second}
	for _, f := range change {
		f(&config)
	}
	c, err := New(config)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// says returns a handler with a fixed response in the format of Prometheus.
func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func vector(elements string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + elements + `]}}`
}

func TestQueryReturnsSamplesOrError(t *testing.T) {
	for _, c := range []struct {
		situation string
		code      int
		body      string
		want      string // the samples
		warn      string
		wrong     string
		trouble   bool
	}{
		{"a vector", 200, vector(`{"metric":{"pod":"a"},"value":[1700000000.125,"0.5"]},{"metric":{},"value":[1700000000,"1e3"]}`),
			"map[pod:a]=0.5@1700000000125 map[]=1000@1700000000000 ", "", "", false},
		{"nothing", 200, vector(""), "", "", "", false},
		{"not numbers", 200, vector(`{"metric":{},"value":[1,"NaN"]},{"metric":{},"value":[1,"+Inf"]}`), "map[]=NaN@1000 map[]=+Inf@1000 ", "", "", false},
		{"a scalar", 200, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"2"]}}`, "map[]=2@1700000000000 ", "", "", false},
		{"warnings", 200, `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store s3 is down"]}`, "", "store s3 is down", "", false},
		{"a native histogram", 200, vector(`{"metric":{},"histogram":[1,{"count":"1"}]},{"metric":{"a":"b"},"value":[1,"1"]}`), "map[a:b]=1@1000 ", "1 native histograms", "", false},
		{"a matrix", 200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "", "", "rate()", false},
		{"a bad query", 400, `{"status":"error","errorType":"bad_data","error":"1:1: parse error: unexpected <op:/>"}`, "", "", "parse error", false},
		{"many-to-many", 422, `{"status":"error","errorType":"execution","error":"many-to-many matching"}`, "", "", "many-to-many", false},
		{"overloaded", 503, `{"status":"error","errorType":"timeout","error":"query timed out"}`, "", "", "timed out", true},
		{"a proxy's page", 502, `<html>`, "", "", "not Prometheus's", true},
		{"another JSON API", 200, `{"kind":"Status"}`, "", "", "not Prometheus's", true},
		{"credentials", 401, `no`, "", "", "credentials", true},
		{"a value that is no number", 200, vector(`{"metric":{},"value":[1,"many"]}`), "", "", "many", false},
		{"a sample of three", 200, vector(`{"metric":{},"value":[1,"1",2]}`), "", "", "pair", false},
		{"more than fits", 200, vector(strings.Repeat(" ", 100_000)), "", "", "too large", true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			client := newClient(t, says(c.code, c.body), func(c *Config) { c.MaxBytes = 50_000 })
			samples, warnings, err := client.Query(t.Context(), "up", time.Time{})
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("Query error = %v, want an error that contains %q", err, c.wrong)
				}
			} else {
				must(t, err)
			}
			got := ""
			for _, s := range samples {
				got += fmt.Sprintf("%v=%v@%d ", s.Metric, s.Value, s.Timestamp.UnixMilli())
			}
			if got != c.want || !strings.Contains(strings.Join(warnings, "\n"), c.warn) {
				t.Errorf("samples %q, want %q; warnings %q", got, c.want, warnings)
			}
			if (client.LastError() != nil) != c.trouble {
				t.Errorf("LastError = %v, want an error: %t", client.LastError(), c.trouble)
			}
		})
	}
}

func TestQueriesAreSentWithParametersAndHeaders(t *testing.T) {
	var seen *http.Request
	var form url.Values
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		must(t, r.ParseForm())
		seen, form = r, r.Form
		says(200, `{"status":"success","data":[{"__name__":"up","job":"a"}]}`)(w, r)
	}, func(c *Config) {
		c.Access = httpclient.Config{BearerToken: "secret", Header: http.Header{"X-Scope-OrgID": {"team"}}}
	})
	at := time.UnixMilli(1700000000125)
	series, err := client.Series(t.Context(), []string{"up", `{job="a b"}`}, at)
	must(t, err)
	if len(series) != 1 || series[0]["job"] != "a" {
		t.Errorf("series = %v, want one with job a", series)
	}
	if seen.URL.Path != "/prefix/api/v1/series" || seen.Method != http.MethodGet || form["match[]"][1] != `{job="a b"}` || form.Get("start") != "1700000000.125" {
		t.Errorf("request = %s %s %v, want a GET of /prefix/api/v1/series with both matchers and the time", seen.Method, seen.URL, form)
	}
	if seen.Header.Get("Authorization") != "Bearer secret" || seen.Header.Get("X-Scope-OrgID") != "team" {
		t.Errorf("request header = %v, want the bearer token and X-Scope-OrgID: team", seen.Header)
	}
	long := `sum(up{job=~"` + strings.Repeat("x|", 2000) + `"})`
	if _, _, err := client.Query(t.Context(), long, at); err == nil {
		t.Error("Query with a list of series as the response: error = nil, want an error")
	}
	if seen.Method != http.MethodPost || seen.URL.RawQuery != "" || form.Get("query") != long || form.Get("time") != "1700000000.125" || form.Get("timeout") != "30000ms" {
		t.Errorf("request = %s %s, time %s, timeout %s, want a POST of the query with time 1700000000.125 and timeout 30000ms", seen.Method, seen.URL, form.Get("time"), form.Get("timeout"))
	}
}

func TestQueryOfHangingServerTimesOut(t *testing.T) {
	release := make(chan struct{})
	client := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // an empty response could still arrive
		}
	}, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	defer close(release)
	if _, _, err := client.Query(t.Context(), "up", time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Query of a server that hangs: error = %v, want context.DeadlineExceeded", err)
	}
	if client.LastError() == nil {
		t.Error("LastError after a timeout = nil, want an error")
	}
}

func TestCanceledQueryLeavesLastErrorUnchanged(t *testing.T) {
	client := newClient(t, says(200, vector("")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := client.Query(ctx, "up", time.Time{}); err == nil || client.LastError() != nil {
		t.Errorf("canceled Query: error = %v, LastError = %v, want an error and no LastError", err, client.LastError())
	}
}

func TestInvalidURLsAreRejected(t *testing.T) {
	for _, u := range []string{"", "localhost:9090", "ftp://x", "http://", "http://u:p@x", "http://x?y=z", "http://x y"} {
		if _, err := New(Config{URL: u}); err == nil {
			t.Errorf("New with the URL %q: error = nil, want an error", u)
		}
	}
}

func FuzzVectorsNeverPanic(f *testing.F) {
	f.Add(vector(`{"metric":{"a":"b"},"value":[1,"1"]}`))
	f.Add(`{"resultType":"vector","result":[{"value":[1e300,"NaN"]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		samples, _, err := parseVector([]byte(body))
		if err != nil && samples != nil {
			t.Errorf("parseVector returned samples %v and the error %v, want only one of them", samples, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
