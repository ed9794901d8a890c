package metricsapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Grouping is what is shown as pods.
type Grouping string

// The groupings. Auto is the first of the others that finds anything.
const (
	Auto      Grouping = "auto"
	Kubepods  Grouping = "kubepods"
	Units     Grouping = "units"
	Processes Grouping = "processes"
	None      Grouping = "none"
)

func (g Grouping) validate() error {
	if slices.Contains([]Grouping{Auto, Kubepods, Units, Processes, None}, g) {
		return nil
	}
	return fmt.Errorf("pods from %q: must be auto, kubepods, units, processes or none", g)
}

// podReader reads what is shown as pods.
type podReader struct {
	config    HostConfig
	processes processes
}

// read finds pods by the grouping. An error means that nothing could be read; nothing there is no error.
func (p *podReader) read() (findings, error) {
	by := p.config.Pods
	if by == None {
		return nil, nil
	}
	if by == Processes {
		return p.processes.read(p.config.PodNamespace)
	}
	groups, err := findCgroups(p.config.CgroupPath)
	if err != nil {
		if by == Auto {
			return p.processes.read(p.config.PodNamespace)
		}
		return nil, fmt.Errorf("%s: %w", p.config.CgroupPath, err)
	}
	if by != Units {
		if found := groups.kubepods(p.config.ContainerLogPath, p.config.PodNamespace); len(found) > 0 || by == Kubepods {
			return found, nil
		}
	}
	if found := groups.units(p.config.PodNamespace); len(found) > 0 || by == Units {
		return found, nil
	}
	return p.processes.read(p.config.PodNamespace)
}

// largest keeps the limit of pods that use most memory, and says how many were left out.
func (f findings) largest(limit int) (findings, int) {
	if len(f) <= limit {
		return f, 0
	}
	memory := func(k PodKey) (sum uint64) {
		for _, r := range f[k].containers {
			sum += r.WorkingSet
		}
		return sum
	}
	keys := slices.SortedFunc(maps.Keys(f), func(a, b PodKey) int {
		return cmp.Or(cmp.Compare(memory(b), memory(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	kept := make(findings, limit)
	for _, k := range keys[:limit] {
		kept[k] = f[k]
	}
	return kept, len(f) - limit
}

func (f findings) readings() map[PodKey]map[string]Reading {
	out := make(map[PodKey]map[string]Reading, len(f))
	for key, found := range f {
		out[key] = found.containers
	}
	return out
}
