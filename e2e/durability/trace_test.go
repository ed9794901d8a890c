package durability

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tracerVariable makes this test program a tracer, in a separate process, because a tracer waits for any of its children to
// stop. Its value is the point, and the arguments are the program to trace.
const tracerVariable = "PORTICO_TEST_TRACER"

// A tracePoint is the point at which a program gets a signal: at the entry of the nth system call that changes a file below a
// directory. With 0 the program is killed after it has created its readiness file.
type tracePoint struct {
	signal syscall.Signal
	call   int
	dir    string // without symbolic links
	ready  string // path of that file
}

func (p tracePoint) String() string {
	return fmt.Sprintf("%d:%d:%s:%s", p.signal, p.call, p.dir, p.ready)
}

func parseTracePoint(s string) (p tracePoint, err error) {
	parts := strings.SplitN(s, ":", 4)
	if len(parts) != 4 {
		return p, fmt.Errorf("%q is no trace point", s)
	}
	signal, err := strconv.Atoi(parts[0])
	if err != nil {
		return p, err
	}
	p.signal, p.dir, p.ready = syscall.Signal(signal), parts[2], parts[3]
	p.call, err = strconv.Atoi(parts[1])
	return p, err
}

// traceResult is the output of a tracer.
type traceResult struct {
	calls int  // that changed a file
	ready bool // the program got as far as that, and was killed there
	at    string
}

// trace runs a program under a tracer until it has ended. It writes the output to log.
func trace(p tracePoint, log *os.File, program string, args ...string) (traceResult, error) {
	self, err := os.Executable()
	if err != nil {
		return traceResult{}, err
	}
	cmd := exec.Command(self, append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), tracerVariable+"="+p.String())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, log
	if err := cmd.Run(); err != nil {
		return traceResult{}, fmt.Errorf("trace %s: %w", p, err)
	}
	var r traceResult
	if _, err := fmt.Sscanf(out.String(), "%d %t %q", &r.calls, &r.ready, &r.at); err != nil {
		return r, fmt.Errorf("trace %s: %q: %w", p, out.String(), err)
	}
	return r, nil
}

// tracerMain is the tracer.
func tracerMain(point string, command []string) int {
	p, err := parseTracePoint(point)
	if err == nil {
		var r traceResult
		if r, err = (&tracer{point: p}).run(command); err == nil {
			fmt.Printf("%d %t %q\n", r.calls, r.ready, r.at)
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "tracer:", err)
	return 1
}

type tracer struct {
	point  tracePoint
	pid    int
	result traceResult
	sent   bool
	known  map[int]bool // threads that have been seen
}

func (t *tracer) run(command []string) (traceResult, error) {
	runtime.LockOSThread() // the tracer is a thread
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return t.result, fmt.Errorf("start %s under ptrace, which has to be permitted here: %w", command[0], err)
	}
	t.pid, t.known = cmd.Process.Pid, map[int]bool{cmd.Process.Pid: true}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(t.pid, &status, 0, nil); err != nil || !status.Stopped() {
		return t.result, fmt.Errorf("wait for the start under ptrace, which has to be permitted here: %v, %v", status, err)
	}
	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(t.pid, options); err != nil {
		return t.result, fmt.Errorf("ptrace, which has to be permitted here: %w", err)
	}
	if err := syscall.PtraceSyscall(t.pid, 0); err != nil {
		return t.result, err
	}
	for {
		pid, err := syscall.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return t.result, err
		case status.Exited() || status.Signaled():
			if pid == t.pid {
				return t.result, nil
			}
			continue
		}
		deliver, err := t.stopped(pid, status.StopSignal())
		if err != nil {
			return t.result, err
		}
		if err := syscall.PtraceSyscall(pid, int(deliver)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return t.result, err
		}
	}
}

// stopped handles each stop of a thread, and returns the signal to deliver.
func (t *tracer) stopped(thread int, why syscall.Signal) (deliver syscall.Signal, err error) {
	switch {
	case why == syscall.SIGTRAP|0x80:
		return 0, t.atCall(thread)
	case why == syscall.SIGTRAP:
		return 0, nil // a thread was made
	case why == syscall.SIGSTOP && !t.known[thread]:
		t.known[thread] = true
		return 0, nil
	}
	return why, nil
}

// callInfo is struct ptrace_syscall_info, at the entry of a call.
type callInfo struct {
	op        uint8
	_         [3]byte
	arch      uint32
	ip, stack uint64
	number    uint64
	args      [6]uint64
	_         [3]uint64
}

func (t *tracer) atCall(thread int) error {
	var info callInfo
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		if errno == syscall.ESRCH {
			return nil // it was killed in between
		}
		return fmt.Errorf("PTRACE_GET_SYSCALL_INFO: %w", errno)
	}
	if info.op != 1 { // PTRACE_SYSCALL_INFO_ENTRY
		return nil
	}
	name, target := t.changes(thread, &info)
	if target != t.point.dir && !strings.HasPrefix(target, t.point.dir+"/") {
		return nil
	}
	t.result.calls++
	at := name + " " + strings.TrimPrefix(target, t.point.dir+"/")
	if t.point.call == 0 && strings.HasPrefix(name, "rename") && target == t.point.ready {
		t.result.ready, t.result.at = true, at
		return syscall.Kill(t.pid, syscall.SIGKILL)
	}
	if t.result.calls != t.point.call || t.sent {
		return nil
	}
	t.sent, t.result.at = true, at
	return syscall.Kill(t.pid, t.point.signal)
}

// System calls that change files, by the arguments that identify the file: a descriptor, or a directory and a path.
var (
	byDescriptor = map[uint64]string{
		unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_WRITEV: "writev", unix.SYS_PWRITEV: "pwritev",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate",
		unix.SYS_FCHMOD: "fchmod", unix.SYS_COPY_FILE_RANGE: "copy_file_range",
	}
	byPath = map[uint64]string{
		unix.SYS_OPENAT: "openat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_FCHMODAT: "fchmodat",
	}
	// byTwoPaths have the new name as their second pair.
	byTwoPaths = map[uint64]string{unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat"}
)

// changes returns the file that a call changes, or "".
func (t *tracer) changes(thread int, info *callInfo) (name, target string) {
	if name = byDescriptor[info.number]; name != "" {
		descriptor := info.args[0]
		if info.number == unix.SYS_COPY_FILE_RANGE {
			descriptor = info.args[2]
		}
		target, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, int32(descriptor)))
		return name, target
	}
	if name = byTwoPaths[info.number]; name != "" {
		return name, t.path(thread, int32(info.args[2]), info.args[3])
	}
	if name = byPath[info.number]; name == "" {
		return "", ""
	}
	if info.number == unix.SYS_OPENAT && info.args[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return "", ""
	}
	return name, t.path(thread, int32(info.args[0]), info.args[1])
}

// path reads a path from the memory of a process.
func (t *tracer) path(thread int, dir int32, address uint64) string {
	text := make([]byte, 4096)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", thread))
	if err != nil {
		return ""
	}
	defer memory.Close()
	n, _ := memory.ReadAt(text, int64(address)) // it may end before the next page
	path, _, ended := bytes.Cut(text[:n], []byte{0})
	if !ended {
		return ""
	}
	if filepath.IsAbs(string(path)) {
		return string(path)
	}
	of := "cwd"
	if dir != unix.AT_FDCWD {
		of = fmt.Sprintf("fd/%d", dir)
	}
	base, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", t.pid, of))
	if err != nil {
		return ""
	}
	return filepath.Join(base, string(path))
}
