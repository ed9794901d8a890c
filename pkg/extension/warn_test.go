package extension_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"portico.dev/pkg/extension"
)

func TestWarnings(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("warning ", i))
	}
	for _, c := range []struct {
		situation string
		texts     []string
		want      func(headers []string) bool
	}{
		{"none", nil, func(h []string) bool { return len(h) == 0 }},
		{"twice the same", []string{"late", "late"}, func(h []string) bool { return slices.Equal(h, []string{`299 - "late"`}) }},
		{"quotes and lines", []string{"a \"b\"\r\nX-Evil: 1"}, func(h []string) bool { return slices.Equal(h, []string{`299 - "a \"b\"  X-Evil: 1"`}) }},
		{"very long", []string{strings.Repeat("ü", 1000)}, func(h []string) bool { return len(h) == 1 && len(h[0]) < 600 && strings.Contains(h[0], "ü...") }},
		{"very many", many, func(h []string) bool { return len(h) == 32 }},
		{"nothing", []string{" "}, func(h []string) bool { return len(h) == 0 }},
	} {
		for _, watchable := range []bool{true, false} {
			list := extension.ListFunc[Queue](func(ctx context.Context, _ extension.Query) ([]Queue, error) {
				var all sync.WaitGroup
				for _, text := range c.texts {
					all.Go(func() { extension.Warn(ctx, text) })
				}
				all.Wait()
				return nil, nil
			})
			d := queueDefinition()
			if !watchable {
				d.PollInterval = 0
			}
			s := start(t, nil, extension.Of(d, list))
			if got := s.get(queuesPath).Header.Values("Warning"); !c.want(got) {
				t.Errorf("%s, watchable %t: warnings = %q, want the warnings of this case", c.situation, watchable, got)
			}
		}
	}
	extension.Warn(context.Background(), "nobody hears this")
}

func TestFailingSourceDoesNotFailReadiness(t *testing.T) {
	var trouble error
	s := start(t, func(c *extension.Config) {
		c.Sources = func() []extension.Source {
			return []extension.Source{{Name: "prometheus", LastError: func() error { return trouble }}}
		}
	}, extension.Of(queueDefinition(), twoQueues()))
	s.get("/readyz?verbose").wants(t, 200, "[+]source prometheus ok\n")
	s.get("/metrics").wants(t, 200, `extserver_source_up{source="prometheus"} 1`)
	trouble = errors.New("connection refused\nby 10.0.0.1")
	s.get("/readyz?verbose").wants(t, 200, "[!]source prometheus: connection refused by 10.0.0.1\n", "readyz check passed")
	if a := s.get("/readyz"); a.StatusCode != http.StatusOK || string(a.body) != "ok" {
		t.Errorf("GET /readyz while a source fails = %d %s, want 200 ok", a.StatusCode, a.body)
	}
	s.get("/metrics").wants(t, 200, `extserver_source_up{source="prometheus"} 0`)
}
