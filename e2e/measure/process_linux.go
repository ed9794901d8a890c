package measure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time of a process, in user and kernel mode. It uses the process's clock, which counts
// nanoseconds. /proc/<pid>/stat counts in steps of 10 ms, which is a tenth of the usage in a short interval.
func CPU(pid int) (time.Duration, error) {
	const perProcess = 2 // CPUCLOCK_SCHED of the whole process, in the three bits below the complement of its id
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|perProcess), &t); err != nil {
		return 0, fmt.Errorf("clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// CheckDescriptors returns an error if this process and its children must not open the given number of files.
func CheckDescriptors(many int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < uint64(many) {
		return fmt.Errorf("a process may have %d files open and needs %d: raise it with ulimit -n", limit.Max, many)
	}
	return nil
}

// CheckMemory returns an error if less than the given number of bytes is available.
func CheckMemory(bytes int64) error {
	text, ok := field("/proc/meminfo", "MemAvailable")
	if !ok {
		return errors.New("/proc/meminfo does not say how much memory is available")
	}
	var kb int64
	if _, err := fmt.Sscanf(text, "%d kB", &kb); err != nil {
		return fmt.Errorf("/proc/meminfo: %q: %w", text, err)
	}
	if kb<<10 < bytes {
		return fmt.Errorf("%d MiB of memory are available, and %d are needed", kb>>10, bytes>>20)
	}
	return nil
}

// RSS returns the resident memory of a process, in bytes.
func RSS(pid int) (int64, error) { return status(pid, "VmRSS:") }

// PeakRSS returns the peak resident memory of a process, in bytes, since its start or since ResetPeakRSS.
func PeakRSS(pid int) (int64, error) { return status(pid, "VmHWM:") }

// ResetPeakRSS resets the peak to the current resident memory.
func ResetPeakRSS(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

func status(pid int, name string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if rest, ok := bytes.CutPrefix(lines.Bytes(), []byte(name)); ok {
			n, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, strings.TrimSuffix(name, ":"))
}
