package version

import (
	"strings"
	"testing"
)

// A test is built as `go run` builds: the go command records no commit.
func TestBuildWithoutCommitReportsUnknown(t *testing.T) {
	if info := Get(); info.GitCommit != Unknown || info.GitTreeState != "" {
		t.Errorf("commit %q, tree %q", info.GitCommit, info.GitTreeState)
	}
	if text := Text("portico"); !strings.HasPrefix(text, "portico "+Portico+" (Kubernetes v1.") || !strings.HasSuffix(text, "commit unknown (go run records none, go build in a clone does))") {
		t.Error(text)
	}
}

func TestReleaseCommitAndTreeStateAreReported(t *testing.T) {
	t.Cleanup(func() { Commit, Date = "", "" })
	for commit, want := range map[string][2]string{
		"6503403dc4a2":       {"6503403dc4a2", "clean"},
		"6503403dc4a2-dirty": {"6503403dc4a2", "dirty"},
	} {
		Commit, Date = commit, "2026-11-20T10:00:00Z"
		info := Get()
		if info.GitCommit != want[0] || info.GitTreeState != want[1] || info.BuildDate != Date {
			t.Errorf("version info for the commit %s = %+v, want %q", commit, info, want)
		}
		if changed := strings.HasSuffix(Text("extserver"), ", commit 6503403dc4a2 with changes)"); changed != (want[1] == "dirty") {
			t.Errorf("Text(\"extserver\") = %s, want \"with changes\" only for a dirty build", Text("extserver"))
		}
	}
}
