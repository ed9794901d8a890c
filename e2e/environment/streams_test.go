package environment

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestEventsOfAnyLengthAreHeardOnce(t *testing.T) {
	sent := fmt.Sprintf(`"sent":"%d"`, time.Now().Add(-time.Second).UnixNano())
	for name, c := range map[string]struct {
		stream string
		heard  int
	}{
		"short":                                  {`{"a":{` + sent + "}}\n", 1},
		"two":                                    {`{` + sent + "}\n{" + sent + "}\n", 2},
		"longer than the buffer":                 {`{` + sent + `,"x":"` + strings.Repeat("x", 10_000) + "\"}\n{" + sent + "}\n", 2},
		"a bookmark":                             {`{"type":"BOOKMARK"}` + "\n", 0},
		"the same words at the end of long ones": {`{` + sent + `,"x":"` + strings.Repeat("x", 3000) + `"` + sent + "}\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Streams{server: &Server{Name: "test"}, listening: true}
			s.read(t.Context(), io.LimitReader(strings.NewReader(c.stream), int64(len(c.stream))))
			if len(s.delays) != c.heard {
				t.Fatalf("heard %d, want %d", len(s.delays), c.heard)
			}
			for _, d := range s.delays {
				if d < time.Second || d > time.Minute {
					t.Errorf("delay of an event = %s, want between 1 s and 1 min", d)
				}
			}
			if s.Broken() == nil {
				t.Error("Broken of a stream that ended = nil, want an error")
			}
		})
	}
}
