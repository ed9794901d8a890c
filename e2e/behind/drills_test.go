//go:build incumbent

package behind

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill"
)

var onlyDrills = flag.String("drills", "", "drills to hold, separated by commas; what is recorded of the others stays. Empty: all")

// drilled is the result of a drill at both front doors, and at a kube-apiserver with a gateway between it and the extension
// servers.
type drilled struct {
	Drill         string `json:"drill"`
	KubeAPIServer held   `json:"kubeAPIServer"`
	Portico       held   `json:"portico"`
	Gateway       held   `json:"gateway"`
}

type held struct {
	Verdict string `json:"verdict"`
	// Detected and Recovered are seconds; absent when the condition never turned.
	Detected  float64 `json:"detected,omitempty"`
	Recovered float64 `json:"recovered,omitempty"`
	// DidNotHold lists unmet expectations with the observations.
	DidNotHold []string `json:"didNotHold,omitempty"`
	// Why it was not held.
	Why string `json:"why,omitempty"`
}

// All drills run at kube-apiserver and at a front door, by the same command and with the same expectations. The front door must
// pass. Failures of kube-apiserver are recorded. A drill that cannot run there is an error, unless it has a documented reason.
func TestDrills(t *testing.T) {
	toHold := chosenDrills(t)
	t.Run("kube-apiserver", func(t *testing.T) {
		k := control(t, true) // no kube-proxy runs, and some drills have several endpoints
		all := holdAtKubeAPIServer(t, k, toHold, nil)
		for _, d := range toHold {
			h := all[d.Name]
			t.Logf("%s: %+v", d.Name, h)
			ourOwn := h.Verdict == string(drill.Skipped) && d.Needs == drill.OurAnnotations && h.Why != ""
			if h.Verdict != string(drill.Passed) && h.Verdict != string(drill.Failed) && !ourOwn {
				t.Errorf("drill %s at kube-apiserver = %+v, want passed or failed", d.Name, h)
			}
			book.drilled(theirs, drilled{Drill: d.Name, KubeAPIServer: h})
		}
	})
	t.Run("portico", func(t *testing.T) {
		args := []string{"drill", "run", "-o", "json"}
		for _, d := range toHold {
			args = append(args, d.Name)
		}
		all := hold(t, args...)
		for _, d := range toHold {
			h := all[d.Name]
			t.Logf("%s: %+v", d.Name, h)
			if h.Verdict != string(drill.Passed) {
				t.Errorf("drill %s at the front door = %+v, want passed", d.Name, h)
			}
			book.drilled(ours, drilled{Drill: d.Name, Portico: h})
		}
	})
}

// chosenDrills returns the drills of the flag. A kube-apiserver has no Clusters: see TestFleetDrills.
func chosenDrills(t *testing.T) []drill.Drill {
	t.Helper()
	if *onlyDrills == "" {
		return slices.DeleteFunc(drill.All(), func(d drill.Drill) bool { return d.Cluster })
	}
	chosen, err := drill.Find(strings.Split(*onlyDrills, ",")...)
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

// holdAtKubeAPIServer holds drills, with a gateway if there is one.
func holdAtKubeAPIServer(t *testing.T, k *cluster.Cluster, toHold []drill.Drill, gateway *adoption.Service) map[string]held {
	t.Helper()
	// Where it dials endpoints itself, it reaches no ExternalName: it is given the address of this machine.
	address := reachable(t)
	args := []string{"drill", "run", "-o", "json", "--kubeconfig", k.Kubeconfig, "--advertise-address", address}
	if gateway != nil {
		args = append(args, "--gateway", gateway.String())
	}
	const restart = "restart-everything-dead" // the command cannot restart a process that it did not start; this test can
	together := slices.Clone(args)
	all := map[string]held{}
	for _, d := range toHold {
		switch {
		case d.Replicas > 0: // of several servers, which run only for them; the remaining drills have one
			all[d.Name] = holdWithReplica(t, k, d.Name, args)
		case d.Name == restart:
			all[d.Name] = holdRestart(t, k, restart, address, gateway)
		default:
			together = append(together, d.Name)
		}
	}
	if len(together) > len(args) {
		maps.Copy(all, hold(t, together...))
	}
	return all
}

// drilled adds one side of a drill.
func (r *record) drilled(frontDoor string, d drilled) {
	r.add(drillsAt+frontDoor, func() { r.insert(d) })
}

// insert adds a drill, or another side of it.
func (r *record) insert(d drilled) {
	for i := range r.Drills {
		if r.Drills[i].Drill == d.Drill {
			r.Drills[i] = r.Drills[i].and(d)
			return
		}
	}
	r.Drills = append(r.Drills, d)
}

// and completes d with the missing results of other.
func (d drilled) and(other drilled) drilled {
	if d.KubeAPIServer.Verdict == "" {
		d.KubeAPIServer = other.KubeAPIServer
	}
	if d.Portico.Verdict == "" {
		d.Portico = other.Portico
	}
	if d.Gateway.Verdict == "" {
		d.Gateway = other.Gateway
	}
	return d
}

// hold runs the command and parses its output.
func hold(t *testing.T, args ...string) map[string]held {
	t.Helper()
	t.Setenv("PATH", binaries+string(os.PathListSeparator)+os.Getenv("PATH")) // for the kubectl under test
	out := runProgram(t, "", "", "aggregator", args...)
	var results []*result
	if err := json.Unmarshal([]byte(out.stdout), &results); err != nil {
		t.Fatalf("drill run = %v: %s; want JSON", err, out)
	}
	all := map[string]held{}
	for _, r := range results {
		all[r.Drill] = r.held()
	}
	return all
}

// result is the parsed part of a drill's result.
type result struct {
	Drill, Verdict, Why string
	Findings            []struct {
		Expected, Seen string
		Holds          bool
	}
	Measures []struct {
		Name    string
		Seconds float64
		Never   bool
	}
	LeftBehind []string
}

func (r *result) held() held {
	h := held{Verdict: r.Verdict, Why: r.Why}
	for _, f := range r.Findings {
		if !f.Holds {
			h.DidNotHold = append(h.DidNotHold, fmt.Sprintf("%s: %.300s", f.Expected, f.Seen))
		}
	}
	turned := false
	for _, m := range r.Measures {
		switch {
		case m.Name == drill.TimeToDetect && !m.Never:
			h.Detected, turned = m.Seconds, true
		case m.Name == drill.TimeToRecover && turned:
			h.Recovered = m.Seconds
		}
	}
	return h
}

// holdWithReplica holds a drill of several kube-apiservers over one etcd.
func holdWithReplica(t *testing.T, k *cluster.Cluster, name string, args []string) held {
	t.Helper()
	other, stop, err := k.AddReplica(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := hold(t, append(slices.Clone(args), "--replica", other.Host, name)...)[name]
	if err := stop(); err != nil {
		t.Error(err)
	}
	return h
}

// holdRestart runs the drill that restarts the front door, by killing and restarting kube-apiserver.
func holdRestart(t *testing.T, k *cluster.Cluster, name, address string, gateway *adoption.Service) held {
	t.Helper()
	drills, err := drill.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	r := drill.Run(t.Context(), drills[0], drill.Target{Name: "kube-apiserver", Config: k.Admin, Advertise: address, Bind: "0.0.0.0", Gateway: gateway, Restart: func(ctx context.Context) error {
		if err := k.StopAPIServer(); err != nil {
			return err
		}
		return k.StartAPIServer(ctx)
	}}, func(string) {})
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var read result
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return read.held()
}
