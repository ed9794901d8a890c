package memory

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// ReleaseStartPages returns pages of the program text to the operating system. Two thirds of the resident pages were needed
// only at the start, and the kernel maps sixteen pages around each. Pages that are needed later return from the page cache when
// they are accessed. Pages that were modified after they were mapped (Anonymous), such as the relocations of a
// position-independent program, would be lost. A mapping with such pages is not released.
func ReleaseStartPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var from, to uintptr
	ours := false
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		var begin, end, offset, inode uintptr
		var mode, device, path string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d %s", &begin, &end, &mode, &offset, &device, &inode, &path); n >= 6 {
			from, to = begin, end
			ours = path == program && (mode == "r-xp" || mode == "r--p")
			continue
		}
		if !ours || lines.Text() != "Anonymous:             0 kB" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// available returns the memory that this process may use: the machine's memory, or the lowest limit of its control groups.
func available() uint64 {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if err := unix.Sysinfo(&info); err == nil {
		machine = uint64(info.Totalram) * uint64(info.Unit)
	}
	if group := FindCgroup(); group != nil {
		return min(machine, group.Limit)
	}
	return machine
}
