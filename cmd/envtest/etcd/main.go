// Command etcd is the etcd of controller-runtime's envtest, beside the kube-apiserver of cmd/envtest. It is etcd itself, of
// the version that the front door embeds, with every flag that etcd has. A member that is alone is elected sooner.
package main

import (
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(withDefaults(os.Args, os.LookupEnv))
}

// electionDefaults are flags with other values than etcd's, whose member is elected a second after its start: etcd's timing is
// for members in several data centres. The environment variable of a flag sets it too, and etcd refuses one that is set by both.
var electionDefaults = []struct{ flag, value, variable string }{
	{"heartbeat-interval", "20", "ETCD_HEARTBEAT_INTERVAL"},
	{"election-timeout", "100", "ETCD_ELECTION_TIMEOUT"},
}

// withDefaults adds electionDefaults to a command line, unless it sets one of them: one has to suit the other.
func withDefaults(args []string, lookup func(string) (string, bool)) []string {
	if len(args) < 2 || !strings.HasPrefix(args[1], "-") {
		return args // a subcommand
	}
	var added []string
	for _, d := range electionDefaults {
		given := slices.ContainsFunc(args[1:], func(arg string) bool {
			name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			return name == d.flag || name == "config-file"
		})
		if _, set := lookup(d.variable); set || given {
			return args
		}
		added = append(added, "--"+d.flag+"="+d.value)
	}
	return slices.Concat(args[:1], added, args[1:])
}
