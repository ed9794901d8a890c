package overload

import (
	"fmt"
	"math"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/api/resource"

	"portico.dev/internal/run/memory"
)

// Limit is the memory limit of the process. The zero value means no limit.
type Limit struct {
	// Bytes is the limit to which the thresholds apply. 0 means no limit and disables load shedding.
	Bytes uint64
	// Source describes the origin of the limit, for logs.
	Source string

	group *memory.Cgroup // may be nil
}

// heapPercent is the part of a hard limit that is available to the Go runtime. The rest is for memory that the
// runtime does not count: kernel memory and mapped pages of etcd's file.
const heapPercent = 90

// minLimit is the smallest accepted limit. An idle front door needs almost as much.
const minLimit = 128 << 20

// CheckSetting validates a value of --memory-limit: empty, 0, or a quantity such as 2Gi.
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
	if n != 0 && n < minLimit {
		return 0, fmt.Errorf("%q is too little: a server without clients needs 128Mi; 0 turns shedding off", setting)
	}
	return uint64(n), nil
}

// Find returns the limit of this process: the minimum of setting (the value of --memory-limit, may be empty), the
// limit of its control group, and GOMEMLIMIT. A setting of 0 means no limit.
func Find(setting string) (Limit, error) {
	return find(setting, memory.FindCgroup(), debug.SetMemoryLimit(-1))
}

func find(setting string, group *memory.Cgroup, collector int64) (Limit, error) {
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

// SetMemoryLimit sets the garbage collector's limit, unless GOMEMLIMIT is set. It must be called by the program, not
// by packages, because it changes a global setting. undo restores the previous limit.
func (l Limit) SetMemoryLimit() (undo func()) {
	before := debug.SetMemoryLimit(-1)
	if l.Bytes == 0 || before < math.MaxInt64 {
		return func() {}
	}
	debug.SetMemoryLimit(int64(l.Bytes))
	return func() { debug.SetMemoryLimit(before) }
}

// Share returns the default size most, limited to the given fraction of the limit.
func (l Limit) Share(most int64, parts uint64) int64 {
	if l.Bytes == 0 {
		return most
	}
	return min(most, int64(l.Bytes/parts))
}
