package durability

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slowDisk makes the disk of members of etcd slow: each fsync of a file below one of the directories is delayed. The kernel
// notifies this process about every fsync of its threads and children (seccomp's user notifications), and continues the call
// after the response.
type slowDisk struct {
	listener int
	delays   sync.Map // time.Duration by directory
	synced   atomic.Int64
}

// theSlowDisk is installed once. It cannot be removed: without a listener, no fsync would work any more.
var theSlowDisk = sync.OnceValues(installSlowDisk)

const (
	// seccompNotification and seccompResponse are the sizes of seccomp_notif and seccomp_notif_resp.
	seccompNotification = 80
	seccompResponse     = 24
	// seccompReceive and seccompSend are SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND.
	seccompReceive = 0xc0502100
	seccompSend    = 0xc0182101
	// seccompContinue is SECCOMP_USER_NOTIF_FLAG_CONTINUE.
	seccompContinue = 1
)

func installSlowDisk() (*slowDisk, error) {
	architecture, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("slow disks on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		decide  = unix.BPF_RET | unix.BPF_K
		arch    = 4 // offset in seccomp_data
		syscall = 0
	)
	filter := []unix.SockFilter{
		{Code: load, K: arch},
		{Code: equal, K: architecture, Jf: 3},
		{Code: load, K: syscall},
		{Code: equal, K: unix.SYS_FSYNC, Jt: 2},
		{Code: equal, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: decide, K: unix.SECCOMP_RET_ALLOW},
		{Code: decide, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("slow disks: %w: %w", errors.ErrUnsupported, err)
	}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, fmt.Errorf("slow disks: %w: %w", errors.ErrUnsupported, errno)
	}
	unix.CloseOnExec(int(listener))
	s := &slowDisk{listener: int(listener)}
	go s.run() // as long as the process
	return s, nil
}

// run answers the kernel. It must not write to a disk itself.
func (s *slowDisk) run() {
	for {
		var notification [seccompNotification]byte // must be zero
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), seccompReceive, uintptr(unsafe.Pointer(&notification))); errno != 0 {
			continue // the call was interrupted, or the caller has exited
		}
		id := binary.NativeEndian.Uint64(notification[0:])
		pid := binary.NativeEndian.Uint32(notification[8:])
		file := binary.NativeEndian.Uint64(notification[32:]) // the first argument
		delay := s.delayOf(pid, file)
		if delay == 0 {
			s.answer(id)
			continue
		}
		s.synced.Add(1)
		time.AfterFunc(delay, func() { s.answer(id) })
	}
}

// delayOf is how long an fsync of a file takes more.
func (s *slowDisk) delayOf(pid uint32, file uint64) (delay time.Duration) {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, file))
	if err != nil {
		return 0
	}
	s.delays.Range(func(dir, of any) bool {
		if strings.HasPrefix(path, dir.(string)+string(filepath.Separator)) {
			delay = of.(time.Duration)
		}
		return delay == 0
	})
	return delay
}

// answer lets the kernel continue the call. It fails if the caller has exited.
func (s *slowDisk) answer(id uint64) {
	var response [seccompResponse]byte
	binary.NativeEndian.PutUint64(response[0:], id)
	binary.NativeEndian.PutUint32(response[20:], seccompContinue)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), seccompSend, uintptr(unsafe.Pointer(&response)))
}

// slowDown has each fsync in these directories take so much longer, as long as during runs. It returns how many there were.
func slowDown(dirs []string, delay func() time.Duration, during func()) (synced int64, err error) {
	s, err := theSlowDisk()
	if err != nil {
		return 0, err
	}
	before := s.synced.Load()
	for _, dir := range dirs {
		s.delays.Store(dir, delay())
		defer s.delays.Delete(dir)
	}
	during()
	return s.synced.Load() - before, nil
}
