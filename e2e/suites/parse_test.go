package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParsePackages(t *testing.T) {
	const list = `example.com/m/pkg.test /src/pkg bytes,sigs.k8s.io/controller-runtime/pkg/internal/testing/controlplane,github.com/onsi/ginkgo/v2
example.com/m/cmd /src/cmd bytes,sigs.k8s.io/controller-runtime/pkg/internal/testing/controlplane
example.com/m/a.test /src/a sigs.k8s.io/controller-runtime/pkg/internal/testing/controlplane [example.com/m/a.test]
example.com/m/other.test /src/other bytes,github.com/onsi/ginkgo/v2

`
	want := []testPackage{{path: "example.com/m/a", dir: "/src/a"}, {path: "example.com/m/pkg", dir: "/src/pkg", ginkgo: true}}
	if got := parsePackages(list); !slices.Equal(got, want) {
		t.Errorf("parsePackages = %+v, want %+v", got, want)
	}
}

func TestParseTests(t *testing.T) {
	const output = `=== RUN   TestSuite
Running Suite: Things - /src
--- FAIL: TestSuite (3.00s)
=== RUN   TestTable
=== RUN   TestTable/first
=== RUN   TestTable/second_on_port_34567
    a_test.go:12: got 1
        want 2
--- FAIL: TestTable (1.50s)
    --- PASS: TestTable/first (0.50s)
    --- FAIL: TestTable/second_on_port_34567 (1.00s)
=== RUN   TestLeftOut
    a_test.go:20: not on this machine
--- SKIP: TestLeftOut (0.00s)
=== RUN   TestHangs
panic: test timed out after 1m0s
`
	want := []spec{
		{Name: "TestTable", State: failed, Seconds: 1.5},
		{Name: "TestTable/first", State: passed, Seconds: 0.5},
		{Name: "TestTable/second_on_port_34567", State: failed, Seconds: 1, Message: "a_test.go:12: got 1\nwant 2"},
		{Name: "TestLeftOut", State: skipped},
		{Name: "TestHangs", State: failed, Message: "it did not end"},
	}
	if got := parseTests(output); !slices.Equal(got, want) {
		t.Errorf("parseTests = %+v\nwant %+v", got, want)
	}
}

func TestParseReport(t *testing.T) {
	const report = `[{"SpecReports":[
{"LeafNodeType":"BeforeSuite","LeafNodeText":"","State":"passed","RunTime":5},
{"ContainerHierarchyTexts":["a client"],"LeafNodeType":"It","LeafNodeText":"gets 48213","State":"passed","RunTime":1500000000},
{"ContainerHierarchyTexts":["a client"],"LeafNodeType":"It","LeafNodeText":"gets 48214","State":"panicked","Failure":{"Message":"no","Location":{"FileName":"f.go","LineNumber":3}}},
{"ContainerHierarchyTexts":["a client"],"LeafNodeType":"It","LeafNodeText":"waits","State":"pending"},
{"LeafNodeType":"AfterSuite","State":"timedout","Failure":{"Message":"late","Location":{"FileName":"f.go","LineNumber":9}}}]}]`
	got, err := parseReport([]byte(report))
	want := []spec{
		{Name: "a client gets N", State: passed, Seconds: 1.5},
		{Name: "a client gets N #2", State: failed, Message: "f.go:3: no"},
		{Name: "a client waits", State: skipped},
		{Name: "[AfterSuite]", State: failed, Message: "f.go:9: late"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("parseReport: %v, %+v\nwant %+v", err, got, want)
	}
	if _, err := parseReport([]byte("{")); err == nil {
		t.Error("parseReport of a truncated report returned no error, want one")
	}
}

func TestNamesWithoutWhatIsRandom(t *testing.T) {
	names := counter{}
	for _, c := range [][2]string{
		{"on port 40123", "on port N"}, {"on  port\n40124", "on port N #2"}, {"10 times in 200 ms", "10 times in 200 ms"},
		{"ns-7f0c2a54-08d1-4b5e-9f52-1d2a3b4c5d6e is there", "ns-N is there"}, {"at 0xc000123456", "at N"},
	} {
		if got := names.unique(c[0]); got != c[1] {
			t.Errorf("unique(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}

func TestBoundedKeepsCharactersWhole(t *testing.T) {
	if got := bounded(strings.Repeat("é", maxMessage)); len(got) > maxMessage+3 || strings.ContainsRune(got, '�') {
		t.Errorf("bounded = %d bytes, want at most %d and whole characters", len(got), maxMessage+3)
	}
}
