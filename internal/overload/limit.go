package overload

import (
	"fmt"
	"math"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/api/resource"

	"portico.dev/internal/run/cgroup"
)

// Limit is how much memory the process may use. The zero value is none.
type Limit struct {
	// Bytes is what the shares of the levels are of. 0: there is no limit, and no load is shed.
	Bytes uint64
	// Source is where it comes from, for logs.
	Source string

	group *cgroup.Memory // nil: there is none
}

// heapPercent is the part of a hard limit that is given to the heap and what belongs to it, in percent. The rest is for what Go does
// not count: the kernel's memory and the mapped pages of etcd's file.
const heapPercent = 90

// leastLimit is a bound of sense: a front door that does nothing needs nearly as much.
const leastLimit = 128 << 20

// CheckSetting reports what is wrong with a value of --memory-limit: empty, 0, or a quantity such as 2Gi.
func CheckSetting(setting string) error {
	_, err := parse(setting)
	return err
}

func parse(setting string) (uint64, error) {
	if setting == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(setting)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of bytes such as 2Gi; 0 turns shedding off", setting)
	}
	n := q.Value()
	if n != 0 && n < leastLimit {
		return 0, fmt.Errorf("%q is too little: a server without clients needs 128Mi; 0 turns shedding off", setting)
	}
	return uint64(n), nil
}

// Find returns the limit of this process: the least of setting (a value of --memory-limit; empty: not set), of what its control group
// allows, and of GOMEMLIMIT. A setting of 0 is no limit.
func Find(setting string) (Limit, error) {
	return find(setting, cgroup.Find(), debug.SetMemoryLimit(-1))
}

func find(setting string, group *cgroup.Memory, collector int64) (Limit, error) {
	given, err := parse(setting)
	if err != nil || setting != "" && given == 0 {
		return Limit{}, err
	}
	l := Limit{group: group}
	atMost := func(n uint64, source string) {
		if l.Bytes == 0 || n < l.Bytes {
			l.Bytes, l.Source = n, source
		}
	}
	if given > 0 {
		atMost(given/100*heapPercent, "--memory-limit")
	}
	if group != nil {
		atMost(group.Limit/100*heapPercent, "the control group")
	}
	if collector > 0 && collector < math.MaxInt64 {
		atMost(uint64(collector), "GOMEMLIMIT")
	}
	return l, nil
}

// SetMemoryLimit has the garbage collector work harder before the limit is reached, unless GOMEMLIMIT already says when. It is for
// the program, not for packages: there is one collector. What it returns undoes it.
func (l Limit) SetMemoryLimit() (undo func()) {
	before := debug.SetMemoryLimit(-1)
	if l.Bytes == 0 || before < math.MaxInt64 {
		return func() {}
	}
	debug.SetMemoryLimit(int64(l.Bytes))
	return func() { debug.SetMemoryLimit(before) }
}

// Share bounds something that has a size of its own, most, to one of so many parts of the limit.
func (l Limit) Share(most int64, parts uint64) int64 {
	if l.Bytes == 0 {
		return most
	}
	return min(most, int64(l.Bytes/parts))
}
