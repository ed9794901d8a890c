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

// CPU is the processor time that a process has used, its own and the kernel's for it. /proc/<pid>/stat counts in steps of
// 10 ms, which is a tenth of what a short stretch uses; the process's clock counts nanoseconds.
func CPU(pid int) (time.Duration, error) {
	const perProcess = 2 // CPUCLOCK_SCHED of the whole process, in the three bits below the complement of its id
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|perProcess), &t); err != nil {
		return 0, fmt.Errorf("clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// CheckDescriptors is an error if a process, this one or one that it starts, may not have that many files open.
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

// CheckMemory is an error if the machine has not that many bytes to give.
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

// RSS is how many bytes of a process are in memory.
func RSS(pid int) (int64, error) { return status(pid, "VmRSS:") }

// PeakRSS is how many bytes of a process were in memory at once, since it started or since ResetPeakRSS.
func PeakRSS(pid int) (int64, error) { return status(pid, "VmHWM:") }

// ResetPeakRSS makes PeakRSS begin anew with what is in memory now.
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
