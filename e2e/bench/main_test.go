package main

import (
	"slices"
	"testing"

	"portico.dev/e2e/bench/yard"
)

func TestWhatIsMeasured(t *testing.T) {
	both := yard.Theirs{APIServer: "a", ControllerManager: "c"}
	for name, c := range map[string]struct {
		names  []string
		before string
		theirs yard.Theirs
		want   []string // nil: it is refused
	}{
		"nothing is said":                      {nil, "", yard.Theirs{}, []string{"proxied", "scale", "local"}},
		"some, in another order":               {[]string{"local", "proxied"}, "", yard.Theirs{}, []string{"local", "proxied"}},
		"one that there is not":                {[]string{"incumbent"}, "", yard.Theirs{}, nil},
		"programs of the other side":           {nil, "", both, []string{"incumbent"}},
		"one program of the other side":        {nil, "", yard.Theirs{APIServer: "a"}, nil},
		"programs of the other side, and more": {[]string{"local"}, "", both, nil},
		"two builds":                           {[]string{"builds"}, "old", yard.Theirs{}, []string{"builds"}},
		"two builds, of which one is missing":  {[]string{"builds"}, "", yard.Theirs{}, nil},
		"two builds, and nothing to do":        {nil, "old", yard.Theirs{}, nil},
		"two builds, and more":                 {[]string{"builds", "local"}, "old", yard.Theirs{}, nil},
	} {
		chosen, err := choose(c.names, c.before, c.theirs)
		var got []string
		for _, b := range chosen {
			got = append(got, b.name)
		}
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}
