package hostmetrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// reading is the machine's counters at one moment.
type reading struct {
	at         time.Time // with its monotonic part, so that a clock that is set does not bend a window
	busy       float64   // seconds of CPU time since boot
	workingSet uint64
}

func (s *Sampler) read() (reading, error) {
	stat, err := s.fs.Stat()
	if err != nil {
		return reading{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	at := time.Now()
	mem, err := s.fs.Meminfo()
	if err != nil {
		return reading{}, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	set, err := workingSet(mem)
	if err != nil {
		return reading{}, err
	}
	return reading{at: at, busy: busySeconds(stat.CPUTotal), workingSet: set}, nil
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

// usage is what happened between two readings.
func usage(from, to reading) (Usage, error) {
	if from.at.IsZero() {
		return Usage{}, errors.New("the reading before this one failed; two in a row are needed")
	}
	window := to.at.Sub(from.at)
	spent := to.busy - from.busy
	switch {
	case window <= 0:
		return Usage{}, fmt.Errorf("two readings %s apart", window)
	case spent < 0:
		// A processor was taken out, or the counters began anew.
		return Usage{}, errors.New("CPU counters ran backwards")
	}
	return Usage{Cores: spent / window.Seconds(), WorkingSet: to.workingSet, Timestamp: to.at, Window: window}, nil
}
