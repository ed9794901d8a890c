package main

import (
	"slices"
	"testing"

	"portico.dev/e2e/environment"
)

func TestWhatIsMeasured(t *testing.T) {
	both := environment.Kubernetes{APIServer: "a", ControllerManager: "c"}
	for name, c := range map[string]struct {
		names  []string
		before string
		theirs environment.Kubernetes
		want   []string // nil: it is refused
	}{
		"nothing is said":                          {nil, "", environment.Kubernetes{}, []string{"proxied", "scale", "local", "shared"}},
		"some, in another order":                   {[]string{"local", "proxied"}, "", environment.Kubernetes{}, []string{"local", "proxied"}},
		"one that there is not":                    {[]string{"incumbent"}, "", environment.Kubernetes{}, nil},
		"programs of the other side":               {nil, "", both, []string{"incumbent", "gateway"}},
		"one with programs of the other side":      {[]string{"gateway"}, "", both, []string{"gateway"}},
		"one that is made only when it is named":   {[]string{"memory"}, "", environment.Kubernetes{}, []string{"memory"}},
		"the same with programs of the other side": {[]string{"backends"}, "", both, []string{"backends"}},
		"nodes": {[]string{"nodes"}, "", both, []string{"nodes"}},
		"nodes without programs of the other side": {[]string{"nodes"}, "", environment.Kubernetes{}, nil},
		"one program of the other side":            {nil, "", environment.Kubernetes{APIServer: "a"}, nil},
		"programs of the other side, and more":     {[]string{"local"}, "", both, nil},
		"two builds":                               {[]string{"builds"}, "old", environment.Kubernetes{}, []string{"builds"}},
		"two builds, of which one is missing":      {[]string{"builds"}, "", environment.Kubernetes{}, nil},
		"two builds, and nothing to do":            {nil, "old", environment.Kubernetes{}, nil},
		"two builds, and more":                     {[]string{"builds", "local"}, "old", environment.Kubernetes{}, nil},
	} {
		chosen, err := choose(c.names, c.before, c.theirs, 0, nil)
		var got []string
		for _, b := range chosen {
			got = append(got, b.name)
		}
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("choose with %s = %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// -part belongs to one benchmark.
func TestPartsOfLoad(t *testing.T) {
	for name, c := range map[string]struct {
		names, parts []string
		ok           bool
	}{
		"all of it":                {[]string{"load"}, nil, true},
		"some":                     {[]string{"load"}, []string{"bindings", "openapi"}, true},
		"one that there is not":    {[]string{"load"}, []string{"watches"}, false},
		"parts of nothing":         {nil, []string{"bindings"}, false},
		"parts of another":         {[]string{"scale"}, []string{"bindings"}, false},
		"parts of it, and another": {[]string{"load", "scale"}, []string{"bindings"}, false},
	} {
		if _, err := choose(c.names, "", environment.Kubernetes{}, 0, c.parts); (err == nil) != c.ok {
			t.Errorf("choose with %s: error = %v, want success: %v", name, err, c.ok)
		}
	}
}
