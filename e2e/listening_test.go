package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// listening prints the kernel's list of a process's listeners: "tcp ADDRESS" and "unix PATH", one per line.
func listening(ts *testscript.TestScript, args []string) {
	p := storyOf(ts).process(ts, args[0])
	dir := filepath.Join("/proc", strconv.Itoa(p.PID()))
	sockets, err := socketsOf(dir)
	ts.Check(err)
	var lines []string
	for _, family := range []string{"tcp", "tcp6"} {
		rows, err := rowsOf(filepath.Join(dir, "net", family))
		ts.Check(err)
		for _, row := range rows {
			const listen = "0A"
			if len(row) > 9 && row[3] == listen && sockets[row[9]] {
				address, err := address(row[1])
				ts.Check(err)
				lines = append(lines, "tcp "+address)
			}
		}
	}
	rows, err := rowsOf(filepath.Join(dir, "net", "unix"))
	ts.Check(err)
	for _, row := range rows {
		const accepting = "00010000"
		if len(row) > 7 && row[3] == accepting && sockets[row[6]] {
			lines = append(lines, "unix "+row[7])
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(ts.Stdout(), line)
	}
}

// socketsOf is the inodes of a process's sockets.
func socketsOf(dir string) (map[string]bool, error) {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	sockets := map[string]bool{}
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err != nil {
			continue // closed as we look
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return sockets, nil
}

func rowsOf(file string) ([][]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows, nil
}

// address parses the kernel's HEX:PORT. Every four bytes of the address are in the machine's byte order: little-endian on the
// supported platforms.
func address(s string) (string, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return "", err
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	return net.JoinHostPort(net.IP(raw).String(), strconv.FormatUint(n, 10)), nil
}
