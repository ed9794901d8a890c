package extension_test

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/pkg/extension"
)

// A client without credentials sends requests without pause.
func TestA50UnauthenticatedLogLinesAreBounded(t *testing.T) {
	const requests, most = 2000, 1000
	core, logs := observer.New(zap.InfoLevel)
	s := start(t, func(c *extension.Config) { c.Logger, c.AccessLog = zap.New(core), true }, extension.Of(queueDefinition(), &queues{}))
	for range requests {
		if a := s.get("/apis/stats.example.com/v1/queues", "X-Test-User: "); a.StatusCode != 401 {
			t.Fatalf("a request without a user = %s, want 401", a.Status)
		}
	}
	s.get("/apis/stats.example.com/v1/queues")
	must(t, s.stop())
	for _, message := range []string{"authentication failed", "request"} {
		if got := logs.FilterMessage(message).Len(); got == 0 || got > most {
			t.Errorf("%d requests are %d lines %q, want 1 to %d", requests, got, message, most)
		}
	}
	lines := logs.FilterMessage("request").All()
	if got := lines[len(lines)-1].ContextMap()["user"]; got != "alice" {
		t.Errorf("the last line is of user %v, want alice", got)
	}
}
