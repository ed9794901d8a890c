package drill

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/toolclient"
)

// A Drill is the rehearsal of one failure.
type Drill struct {
	// Name identifies the drill on the command line. Title is a one-line description.
	Name, Title string
	// Expect lists the expectations of this drill, in addition to the common ones (always).
	Expect []Expectation
	// About is the typical duration. Limit is the deadline. Neither includes cleanup.
	About, Limit time.Duration
	// Stores makes the subject store objects that clients create and delete. Otherwise its responses are synthetic.
	Stores bool
	// OwnHome gives the subject's Service a dedicated namespace, which the drill may delete.
	OwnHome bool
	// Endpoints is the number of endpoints of the subject, of which the first one fails. 0 means 1.
	Endpoints int
	// OwnProcess runs the subject in a separate process.
	OwnProcess bool
	// Kubectl is true if the drill runs kubectl.
	Kubectl bool
	// Replicas is the number of servers that the target must have in addition to the first one (Target.Replicas).
	Replicas int
	// Partition is true if the subject is cut off from one of the servers.
	Partition bool
	// Needs is the capability that the drill requires of the front door.
	Needs Capability
	// Unregisters is true if the drill deletes and recreates the subject's APIService. The APIRoute has no effect in
	// between.
	Unregisters bool
	// Cluster makes the subject a Cluster, whose API servers fail, instead of an extension server.
	Cluster bool
	// AllFail is true if every extension server fails, so that the bystander has no expectations.
	AllFail bool

	// script injects the fault, waits and repairs. It returns an error if the drill could not run, not if an
	// expectation failed.
	script func(context.Context, *Stage) error
}

// Capability describes the access to the front door that a drill requires, beyond its API.
type Capability int

const (
	// Nothing requires only the API.
	Nothing Capability = iota
	// OurAnnotations requires a front door that supports the annotations of this project.
	OurAnnotations
	// Restart requires a front door that the drill can stop and start.
	Restart
)

// Target is the API server under test.
type Target struct {
	// Name is the display name: the context of a kubeconfig.
	Name string
	// Config is the client configuration. Its identity must be allowed to create namespaces, Services and
	// APIServices.
	Config *rest.Config
	// Replicas are client configurations of further servers of the same cluster: several API servers over one etcd.
	Replicas []*rest.Config
	// Grow starts n further servers. It returns their configurations when they are ready, and a function that stops
	// them. Nil if servers cannot be started.
	Grow func(ctx context.Context, n int) (replicas []*rest.Config, stop func() error, err error)
	// Cluster is the name of an existing Cluster of the server, which stays untouched. Drills of Clusters relay to its API servers.
	Cluster string
	// StartCluster starts an API server and registers it as a Cluster. It returns the name of the Cluster, and a function
	// that stops the API server. Nil if servers cannot be started.
	StartCluster func(ctx context.Context) (name string, stop func() error, err error)
	// Restart stops the server and returns when it is ready again, at the same address. Nil if it cannot be
	// restarted.
	Restart func(context.Context) error
	// Advertise is the host or IP address at which the server reaches this process. Default localhost.
	Advertise string
	// Bind is the address that the servers of drills listen on. Default 127.0.0.1.
	Bind string
	// Command starts an extension server in a separate process (faulty.Config). Empty if that is not possible.
	Command []string
	// Gateway is the Service of the gateway that the drilled servers are registered behind. Nil if they are
	// registered directly.
	Gateway *adoption.Service
	// APIRoute makes the subject the first of two backends of an APIRoute. The second one is healthy and receives the
	// requests that select it.
	APIRoute bool
	// Kubeconfig and Context are passed to kubectl. Drills that run kubectl are skipped if Kubeconfig is empty.
	Kubeconfig, Context string
}

// Result is the outcome of a drill.
type Result struct {
	Drill   string    `json:"drill"`
	Title   string    `json:"title"`
	Server  string    `json:"server"`
	Began   time.Time `json:"began"`
	Took    Seconds   `json:"seconds"`
	Verdict Verdict   `json:"verdict"`
	// Excused is the number of requests that violate an expectation and do not count, because the machine stalled.
	Excused int `json:"excused,omitempty"`
	// Violated lists the violated expectations in short form, with the value and the limit if there is one.
	Violated []string  `json:"violated,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	Measures []Measure `json:"measures,omitempty"`
	// Traffic summarizes the requests of each verb of each component, phase by phase.
	Traffic []Row `json:"traffic,omitempty"`
	// Commands lists the commands that ran, with their output.
	Commands []Command `json:"commands,omitempty"`
	// Left lists what could not be cleaned up.
	Left []string `json:"leftBehind"`
	// Why is the reason if the drill was skipped or could not run.
	Why string `json:"why,omitempty"`

	// History is the complete record, for the timeline.
	History *History `json:"-"`
}

// Verdict is the verdict on a drill.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
	// Broken is the verdict on a drill that could not run. It implies nothing about the front door.
	Broken Verdict = "broken"
)

// Finding is the result of one expectation.
type Finding struct {
	Expected string `json:"expected"`
	Holds    bool   `json:"holds"`
	// Seen is the observed behavior.
	Seen string `json:"seen,omitempty"`

	// violation is the short form of a violated expectation.
	violation string
}

// VerdictText returns the verdict with the number of excused requests: "passed, 3 excused".
func (r *Result) VerdictText() string {
	if r.Excused == 0 {
		return string(r.Verdict)
	}
	return fmt.Sprintf("%s, %d excused", r.Verdict, r.Excused)
}

// Violation returns the first violated expectation in short form and the number of further ones, or "" if all hold:
// "namespace gone after the return: 50.8 s, limit 10 s (and 1 more)".
func (r *Result) Violation() string {
	switch len(r.Violated) {
	case 0:
		return ""
	case 1:
		return r.Violated[0]
	}
	return fmt.Sprintf("%s (and %d more)", r.Violated[0], len(r.Violated)-1)
}

// Measure is a duration that quantifies the effect of a failure.
type Measure struct {
	Name    string  `json:"name"`
	Seconds Seconds `json:"seconds"`
	// Never is true if the event did not happen while the drill waited. Seconds is then the time waited.
	Never bool `json:"never,omitempty"`
}

// Seconds is a duration that marshals to a number of seconds in JSON.
type Seconds time.Duration

// refuses returns the reason why the drill cannot run against the target, or an empty string.
func (t Target) refuses(ctx context.Context, d Drill) string {
	if t.APIRoute && t.Gateway != nil {
		return "an APIRoute and a gateway at once are not drilled"
	}
	if d.Cluster {
		if why := t.refusesClusters(ctx); why != "" {
			return why
		}
	}
	if d.Partition && t.Gateway != nil {
		return "all servers reach the extension server by way of the gateway, so that it cannot be cut off from one of them"
	}
	if d.Endpoints > 1 && !t.endpointAddress().IsValid() {
		return "endpoints need an IP address that is not a loopback address, and this machine has none: name one with --advertise-address"
	}
	if d.Replicas > len(t.Replicas) && t.Grow == nil {
		return fmt.Sprintf("it needs %d servers of one cluster: name the others with --replica", d.Replicas+1)
	}
	if d.OwnProcess && len(t.Command) == 0 {
		return "it stops a process of its own, which this program cannot start"
	}
	if d.Kubectl {
		if _, err := exec.LookPath("kubectl"); err != nil || t.Kubeconfig == "" {
			return "it runs kubectl, which is not in PATH"
		}
	}
	switch d.Needs {
	case Restart:
		if t.Restart == nil {
			return "it restarts the front door, which this command can do only to one of its own: run it without --kubeconfig"
		}
	case OurAnnotations:
		ours, version, err := t.ours(ctx)
		switch {
		case err != nil:
			return fmt.Sprintf("ask for the version: %v", err)
		case !ours:
			return fmt.Sprintf("it is about an annotation of Portico's, and the server is %s", version)
		}
	}
	return ""
}

// endpointAddress returns the address of endpoints: the advertised address, or an address of this machine.
func (t Target) endpointAddress() netip.Addr {
	if t.Advertise != "" {
		address, _ := netip.ParseAddr(t.Advertise) // the zero value if Advertise is a name
		return address
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			address, _ := netip.AddrFromSlice(network.IP.To4())
			return address
		}
	}
	return netip.Addr{}
}

// ours reports whether the server is a front door of this project.
func (t Target) ours(ctx context.Context) (ours bool, version string, err error) {
	client, err := toolclient.New(t.Config)
	if err != nil {
		return false, "", err
	}
	info, err := client.Version(ctx)
	if err != nil {
		return false, "", err
	}
	return strings.Contains(info.GitVersion, "portico"), info.GitVersion, nil
}

// All returns the drills in the recommended order.
func All() []Drill {
	return slices.Concat(connectionDrills(), certificateDrills(), endpointDrills(), clientDrills(), documentDrills(), namespaceDrills(), collectorDrills(), restartDrills(), replicaDrills(), clusterDrills())
}

// Find returns the named drills, in the order of the names.
func Find(names ...string) ([]Drill, error) {
	all := All()
	found := make([]Drill, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(d Drill) bool { return d.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no drill is called %q; there are %s", name, strings.Join(namesOf(all), ", "))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func namesOf(drills []Drill) []string {
	out := make([]string, 0, len(drills))
	for _, d := range drills {
		out = append(out, d.Name)
	}
	return out
}

func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', 3, 64), nil
}

func (s *Seconds) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	*s = Seconds(n * float64(time.Second))
	return err
}

func (s Seconds) String() string {
	return strconv.FormatFloat(time.Duration(s).Seconds(), 'f', 2, 64) + " s"
}
