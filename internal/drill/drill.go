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

	"portico.dev/internal/adoption"
	"portico.dev/internal/toolclient"
)

// Drill is one failure, rehearsed.
type Drill struct {
	// Name is how it is asked for, Title what it does, in one line.
	Name, Title string
	// Expect is what must hold for the drill to pass, beside what is expected of all (always).
	Expect []Expectation
	// About is how long it takes when all is well, Limit when it is given up; cleaning up comes on top.
	About, Limit time.Duration
	// Stores: the subject keeps objects, which can be created and deleted. Otherwise it makes up what it answers.
	Stores bool
	// OwnHome: the subject's Service has a namespace to itself, which the drill may delete.
	OwnHome bool
	// Endpoints is how many endpoints the subject has, of which the first one fails. 0 is one.
	Endpoints int
	// OwnProcess: the subject is a process of its own.
	OwnProcess bool
	// Kubectl: the drill runs kubectl.
	Kubectl bool
	// Replicas is how many servers the target must have besides the first (Target.Replicas).
	Replicas int
	// Partition: the subject is cut off from one of the servers.
	Partition bool
	// Needs is what the front door must let us do.
	Needs Capability
	// Unregisters: the subject's APIService is deleted and created again, so that its APIRoute is without effect meanwhile.
	Unregisters bool
	// All fail: there is no healthy bystander, and nothing is expected of it.
	AllFail bool

	// script breaks, waits and mends. An error is a drill that could not be held, not a failed expectation.
	script func(context.Context, *Stage) error
}

// Capability is what a drill must be able to do to the front door, beyond its API.
type Capability int

const (
	// Nothing but the API.
	Nothing Capability = iota
	// OurAnnotations: annotations of this project mean something to it.
	OurAnnotations
	// Restart: it can be stopped and started.
	Restart
)

// Target is the API server that is drilled.
type Target struct {
	// Name is what people call it: the context of a kubeconfig.
	Name string
	// Config is a client's; the identity must be allowed to create namespaces, Services and APIServices.
	Config *rest.Config
	// Replicas are clients' configurations of further servers of the same cluster: several API servers over one etcd.
	Replicas []*rest.Config
	// Grow starts so many further servers. It returns them when they are ready, and a function that stops them. Nil: we have no such
	// power.
	Grow func(ctx context.Context, n int) (replicas []*rest.Config, stop func() error, err error)
	// Restart stops the server and returns when it is ready again, at the same address. Nil: we have no such power.
	Restart func(context.Context) error
	// Advertise is the host or IP address where the server reaches this process. Default localhost.
	Advertise string
	// Bind is the address that extension servers listen on. Default 127.0.0.1.
	Bind string
	// Command starts an extension server as a process of its own (faulty.Config). Empty: there can be none.
	Command []string
	// Gateway is the Service of a gateway that the drilled servers are registered behind. Nil: they are registered directly.
	Gateway *adoption.Service
	// APIRoute: the subject is the first of two backends of an APIRoute. The second one is well, and gets the requests that ask for it.
	APIRoute bool
	// Kubeconfig and Context are for kubectl. Without the first, drills that run it are skipped.
	Kubeconfig, Context string
}

// Result is what a drill found.
type Result struct {
	Drill    string    `json:"drill"`
	Title    string    `json:"title"`
	Server   string    `json:"server"`
	Began    time.Time `json:"began"`
	Took     Seconds   `json:"seconds"`
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings,omitempty"`
	Measures []Measure `json:"measures,omitempty"`
	// Traffic is what each verb of each component saw, phase by phase.
	Traffic []Row `json:"traffic,omitempty"`
	// Commands are the commands that were run, and what they printed.
	Commands []Command `json:"commands,omitempty"`
	// Left is what could not be cleaned up.
	Left []string `json:"leftBehind"`
	// Why it was skipped, or could not be held.
	Why string `json:"why,omitempty"`

	// History is everything, for the timeline.
	History *History `json:"-"`
}

// Verdict of a drill.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
	// Broken is a drill that could not be held: it says nothing about the front door.
	Broken Verdict = "broken"
)

// Finding is one expectation, judged.
type Finding struct {
	Expected string `json:"expected"`
	Holds    bool   `json:"holds"`
	// Seen is what was seen instead.
	Seen string `json:"seen,omitempty"`
}

// Measure is a length of time that says how bad it was.
type Measure struct {
	Name    string  `json:"name"`
	Seconds Seconds `json:"seconds"`
	// Never: it did not come about while the drill waited, which was so long.
	Never bool `json:"never,omitempty"`
}

// Seconds is a duration that reads as a number of seconds in JSON.
type Seconds time.Duration

// refuses is why a drill cannot be held there; empty when it can.
func (t Target) refuses(ctx context.Context, d Drill) string {
	if t.APIRoute && t.Gateway != nil {
		return "an APIRoute and a gateway at once are not drilled"
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

// endpointAddress is the address of endpoints: the advertised one, or else one of this machine.
func (t Target) endpointAddress() netip.Addr {
	if t.Advertise != "" {
		address, _ := netip.ParseAddr(t.Advertise) // the zero value for a name
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

// ours: the server is a front door of this project.
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

// All are the drills, in the order in which they are best held.
func All() []Drill {
	return slices.Concat(connectionDrills(), certificateDrills(), endpointDrills(), clientDrills(), documentDrills(), namespaceDrills(), collectorDrills(), restartDrills(), replicaDrills())
}

// Find returns drills by their names, in the order asked for.
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
