package incumbent

import (
	"context"
	"fmt"

	"portico.dev/e2e/bench/local"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// LocalRow contains the results of one server and one operation on local objects. CPU is in microseconds per request,
// or per event delivered to one watch. All includes etcd, in a separate process or not.
type LocalRow struct {
	local.Operation
	Who       string         `json:"server"`
	CPU       measure.Spread `json:"serverCPUus"`
	All       measure.Spread `json:"withEtcdCPUus"`
	PerSecond measure.Spread `json:"perSecond"`
	P50       measure.Spread `json:"p50ms"`
	P99       measure.Spread `json:"p99ms"`
	Peak      measure.Spread `json:"serverPeakMiB"`
	// The ratios are Portico to kube-apiserver: CPU without etcd if both have a separate etcd, and with etcd.
	CPUToTheirs measure.Spread `json:"cpuToTheirs"`
	AllToTheirs measure.Spread `json:"withEtcdCPUToTheirs"`
	P50ToTheirs measure.Spread `json:"p50ToTheirs"`
	P99ToTheirs measure.Spread `json:"p99ToTheirs"`

	costs    []local.Cost
	embedded bool
}

// storageOwner is a server that stores objects.
type storageOwner struct {
	name string
	*local.FrontDoor
	etcd *environment.Server // nil if it is in the same process
}

// theirStorageOwner is the index of the server that the others are compared with.
const theirStorageOwner = 2

func (r *Report) local(ctx context.Context, g *rig, ours *environment.Front, theirs *environment.Incumbent) error {
	g.say("starting a front door on an etcd of its own, and making %d objects three times", g.Many)
	etcd, err := g.y.Etcd("external-etcd")
	if err != nil {
		return err
	}
	external, _, err := g.y.FrontBeside(ctx, "external-ours", etcd)
	if err != nil {
		return err
	}
	frontDoor := func(d *environment.FrontDoor) *local.FrontDoor {
		return &local.FrontDoor{FrontDoor: d, Many: g.Many, Cell: g.LocalCell, Listen: g.LocalWatch}
	}
	all := []storageOwner{
		{"Portico, embedded etcd", frontDoor(ours.FrontDoor), nil},
		{"Portico, separate etcd", frontDoor(external.FrontDoor), etcd},
		{"kube-apiserver, separate etcd", frontDoor(theirs.FrontDoor), theirs.Etcd},
	}
	for _, k := range all {
		if err := k.Fill(ctx); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	operations := local.Compared(g.Many)
	for _, o := range operations {
		for _, k := range all {
			r.Local = append(r.Local, LocalRow{Operation: o, Who: k.name, embedded: k.etcd == nil})
		}
	}
	for round := range g.LocalRounds {
		for i, o := range operations {
			for _, n := range order(len(all), round) {
				g.say("round %d of %d: %s, %d at once, %s", round+1, g.LocalRounds, o.Name, o.Clients, all[n].name)
				beside := all[n].etcd
				if beside == nil {
					beside = all[n].Server
				}
				got, err := all[n].Measure(ctx, o, beside)
				if err != nil {
					return fmt.Errorf("%s, %d at once: %w", o.Name, o.Clients, err)
				}
				row := &r.Local[i*len(all)+n]
				row.costs = append(row.costs, got)
			}
		}
	}
	for i := range operations {
		summarizeLocal(r.Local[i*len(all):][:len(all)])
	}
	return external.Stop()
}

// summarizeLocal computes the rows of one operation.
func summarizeLocal(rows []LocalRow) {
	cpu := func(c local.Cost) float64 { return c.CPU }
	p50 := func(c local.Cost) float64 { return c.P50 }
	p99 := func(c local.Cost) float64 { return c.P99 }
	them := rows[theirStorageOwner].costs
	for i := range rows {
		row := &rows[i]
		whole := make([]local.Cost, len(row.costs))
		for n, c := range row.costs {
			if whole[n] = c; !row.embedded {
				whole[n].CPU += c.Beside
			}
		}
		row.CPU, row.All = measure.Of(row.costs, cpu), measure.Of(whole, cpu)
		row.P50, row.P99 = measure.Of(row.costs, p50), measure.Of(row.costs, p99)
		row.PerSecond = measure.Of(row.costs, func(c local.Cost) float64 { return c.PerSecond })
		row.Peak = measure.Of(row.costs, func(c local.Cost) float64 { return mib(c.Peak) })
		if i == theirStorageOwner {
			continue
		}
		var theirsWhole []local.Cost
		for _, c := range them {
			c.CPU += c.Beside
			theirsWhole = append(theirsWhole, c)
		}
		if !row.embedded {
			row.CPUToTheirs = measure.Ratio(row.costs, them, cpu)
		}
		row.AllToTheirs = measure.Ratio(whole, theirsWhole, cpu)
		row.P50ToTheirs, row.P99ToTheirs = measure.Ratio(row.costs, them, p50), measure.Ratio(row.costs, them, p99)
	}
}
