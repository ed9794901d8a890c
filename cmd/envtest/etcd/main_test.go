package main

import (
	"slices"
	"testing"
)

func TestDefaultTimingsAreAddedForEnvtest(t *testing.T) {
	added := []string{"--heartbeat-interval=20", "--election-timeout=100"}
	for name, c := range map[string]struct {
		args  []string
		set   string
		added bool
	}{
		"as envtest starts it":    {args: []string{"--data-dir=d", "--unsafe-no-fsync=true"}, added: true},
		"one of both is given":    {args: []string{"--election-timeout=1000"}},
		"given as two arguments":  {args: []string{"--heartbeat-interval", "100"}},
		"given with one dash":     {args: []string{"-heartbeat-interval=100"}},
		"given by an environment": {args: []string{"--data-dir=d"}, set: "ETCD_ELECTION_TIMEOUT"},
		"a file has all":          {args: []string{"--config-file=f"}},
		"a subcommand":            {args: []string{"grpc-proxy", "start"}},
		"nothing at all":          {},
	} {
		args := append([]string{"etcd"}, c.args...)
		want := args
		if c.added {
			want = slices.Concat(args[:1], added, args[1:])
		}
		got := withDefaults(args, func(name string) (string, bool) { return "", name == c.set })
		if !slices.Equal(got, want) {
			t.Errorf("withDefaults with %s = %q, want %q", name, got, want)
		}
	}
}
