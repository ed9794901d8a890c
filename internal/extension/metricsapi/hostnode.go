package metricsapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// readNode reads the machine's counters. The time keeps its monotonic part, so that a clock that is set does not bend
// a window.
func readNode(fs procfs.FS) (Reading, error) {
	stat, err := fs.Stat()
	if err != nil {
		return Reading{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	at := time.Now()
	mem, err := fs.Meminfo()
	if err != nil {
		return Reading{}, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	set, err := workingSet(mem)
	if err != nil {
		return Reading{}, err
	}
	return Reading{At: at, Seconds: busySeconds(stat.CPUTotal), WorkingSet: set}, nil
}

// busySeconds is the time in which this machine worked. Waiting for disks is idle time with a name, guests are counted
// in user and nice already, and stolen time is another machine's work.
func busySeconds(c procfs.CPUStat) float64 {
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
}

func workingSet(m procfs.Meminfo) (uint64, error) {
	if m.MemTotalBytes == nil || m.MemAvailableBytes == nil {
		return 0, errors.New("read /proc/meminfo: MemTotal or MemAvailable is missing; Linux 3.14 or later is needed")
	}
	if *m.MemAvailableBytes > *m.MemTotalBytes {
		return 0, nil // seen inside containers whose limits change
	}
	return *m.MemTotalBytes - *m.MemAvailableBytes, nil
}
