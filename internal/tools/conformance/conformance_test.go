package conformance_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/tools/conformance"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// patience is for a loaded machine: a passed check does not wait for it.
const patience = time.Minute

func examine(t *testing.T, c conformance.Config) []*conformance.Report {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	e, err := conformance.New(c)
	must(t, err)
	defer e.Close()
	cards, err := e.Run(t.Context())
	must(t, err)
	return cards
}

// golden compares a card with testdata/<name>.txt. Where the server was is left out.
func golden(t *testing.T, name string, cards []*conformance.Report) {
	t.Helper()
	for _, c := range cards {
		c.Server = "https://server"
	}
	var got bytes.Buffer
	must(t, conformance.WriteText(&got, cards))
	file := filepath.Join("testdata", name+".txt")
	if *update {
		must(t, os.WriteFile(file, got.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("%s differs, want no difference (-update rewrites it)\ngot:\n%s", file, got.String())
	}
}

func full(t *testing.T, cards []*conformance.Report) {
	t.Helper()
	for _, c := range cards {
		if marks, of := c.Score(); marks != of || of == 0 {
			t.Errorf("score of %s = %d of %d, want all", c.GroupVersion, marks, of)
		}
	}
}

func TestDirectExtensionServerPassesAllChecks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := build(t)
	cards := examine(t, conformance.Config{Server: w.server(), Client: w.client(), Write: true, Rotate: true, RotateTimeout: patience})
	full(t, cards)
	golden(t, "ours-directly", cards)
	if bytes.Count([]byte(w.data["requestheader-client-ca-file"]), []byte("BEGIN")) != 1 {
		t.Error("the rotated authority is still published, want it removed")
	}
}

func TestExtensionServerBehindFrontDoorPassesAllChecks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := build(t)
	cards := examine(t, conformance.Config{APIService: "v1." + group, Client: w.client()})
	full(t, cards)
	golden(t, "ours-through-front", cards)
}

func TestInvalidTargetsReturnErrors(t *testing.T) {
	w := build(t)
	away := w.server()
	away.URL = "https://127.0.0.1:1"
	nobody := w.server()
	nobody.FrontProxy = nil
	for name, c := range map[string]struct {
		config conformance.Config
		says   string
	}{
		"nothing is asked for":        {conformance.Config{}, "either an APIService or the URL"},
		"an APIService and no server": {conformance.Config{APIService: "v1." + group}, "give a kubeconfig"},
		"no such APIService":          {conformance.Config{APIService: "v1.nothing", Client: w.client()}, "read the APIService"},
		"nobody listens":              {conformance.Config{Server: away}, "connection refused"},
		"no such check":               {conformance.Config{Server: w.server(), Only: []string{"forms/tabel"}}, "no check is called"},
		"no certificate":              {conformance.Config{Server: nobody}, "give the certificate of a front proxy"},
		"a URL without TLS":           {conformance.Config{Server: &conformance.Server{URL: "http://127.0.0.1"}}, "must be https"},
		"roots that are not a bundle": {conformance.Config{Server: &conformance.Server{URL: "https://127.0.0.1", Roots: []byte("x")}}, "CA bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Timeout = patience
			e, err := conformance.New(c.config)
			if err == nil {
				defer e.Close()
				_, err = e.Run(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Run error = %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestReportsArePrintedAsTextJSONAndJUnit(t *testing.T) {
	cards := []*conformance.Report{{GroupVersion: "g/v1", Server: "https://server", Results: []conformance.Result{
		{ID: "a/passes", Expected: "e", Why: "w", Outcome: conformance.Pass},
		{ID: "a/warns", Expected: "e", Why: "w", Outcome: conformance.Warn, Detail: "dear"},
		{ID: "b/fails", Expected: "e", Why: "w", Outcome: conformance.Fail, Detail: "<wrong> & \"so\""},
		{ID: "b/is-not-offered", Expected: "e", Why: "w", Outcome: conformance.NotApplicable, Detail: "none"},
	}}}
	var text, asJSON, junit bytes.Buffer
	must(t, conformance.WriteText(&text, cards))
	if !strings.Contains(text.String(), "score 1/3, 1 failed, 1 with a warning, 1 not applicable\n") {
		t.Errorf("text report =\n%s\nwant the score 1/3", text.String())
	}
	must(t, conformance.WriteJSON(&asJSON, cards))
	var back []*conformance.Report
	must(t, json.Unmarshal(asJSON.Bytes(), &back))
	if len(back) != 1 || len(back[0].Results) != 4 || back[0].Results[2] != cards[0].Results[2] {
		t.Errorf("JSON report = %s, want the same results", asJSON.String())
	}
	must(t, conformance.WriteJUnit(&junit, cards))
	var suites struct {
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Suite    []struct {
			Tests int `xml:"tests,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	must(t, xml.Unmarshal(junit.Bytes(), &suites))
	if suites.Failures != 1 || suites.Skipped != 1 || len(suites.Suite) != 1 || suites.Suite[0].Tests != 4 {
		t.Errorf("JUnit report =\n%s\nwant 4 tests with 1 failure and 1 skipped", junit.String())
	}
	if f := suites.Suite[0].Cases[2].Failure; f == nil || f.Message != `<wrong> & "so"` {
		t.Errorf("JUnit report =\n%s\nwant the escaped failure", junit.String())
	}
}
