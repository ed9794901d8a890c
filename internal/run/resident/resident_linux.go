package resident

import (
	"bufio"
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// GiveBack lets go of the pages of the program itself. Two thirds of those that are resident were needed to start, and the
// kernel maps sixteen around each; those that are needed to serve come back from the page cache when they are touched. What
// has been written to since it was mapped (Anonymous), as a position-independent program's relocations, would be lost, so
// such a mapping is left alone.
func GiveBack() error {
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
