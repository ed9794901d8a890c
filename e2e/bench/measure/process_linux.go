package measure

import (
	"bufio"
	"bytes"
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
