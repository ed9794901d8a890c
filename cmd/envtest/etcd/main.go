// Command etcd is the etcd binary for controller-runtime's envtest, next to the kube-apiserver of cmd/envtest. It is
// etcd, in the version embedded in the front door, with all flags of etcd. A single member is elected sooner.
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

// electionDefaults replace the defaults of etcd, with which a member is elected one second after its start, because
// they are chosen for members in several data centers. The environment variable of a flag sets it too, and etcd
// refuses a flag that is set in both ways.
var electionDefaults = []struct{ flag, value, variable string }{
	{"heartbeat-interval", "20", "ETCD_HEARTBEAT_INTERVAL"},
	{"election-timeout", "100", "ETCD_ELECTION_TIMEOUT"},
}

// withDefaults adds electionDefaults to a command line, unless it sets one of them, because the two values depend on
// each other.
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
