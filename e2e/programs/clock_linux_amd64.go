package programs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockCode replaces the vDSO function that returns the time without a system call. It makes the system call. For
// the wall clock (0), it then adds the seconds in the immediate operand of its add instruction.
var clockCode = []byte{
	0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x07, // jne to the ret
	0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
	0xc3, // ret
}

// SetClock makes the wall clock of the process differ from the machine's, in whole seconds, as on a machine with a
// wrong clock. Its monotonic clock does not change. On systems other than Linux on amd64, it returns
// errors.ErrUnsupported.
func (p *Process) SetClock(ahead time.Duration) error {
	pid := p.PID()
	image, at, err := vdso(pid)
	if err != nil {
		return err
	}
	function, err := clockFunction(image)
	if err != nil {
		return err
	}
	code := bytes.Clone(clockCode)
	binary.LittleEndian.PutUint32(code[len(code)-5:], uint32(int32(ahead/time.Second)))
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	// No thread may be executing the code that is replaced.
	for range 100 {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		inside, err := anyThreadIn(pid, at+function, uint64(len(code)))
		if err == nil && !inside {
			_, err = memory.WriteAt(code, int64(at+function))
		}
		if err := errors.Join(err, p.cmd.Process.Signal(syscall.SIGCONT)); err != nil || !inside {
			return err
		}
	}
	return errors.New("a thread was always asking for the time")
}

// vdso returns the vDSO image of a process and its address.
func vdso(pid int) (image []byte, at uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &at, &end); err != nil {
			return nil, 0, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return nil, 0, err
		}
		defer memory.Close()
		image = make([]byte, end-at)
		_, err = memory.ReadAt(image, int64(at))
		return image, at, err
	}
	return nil, 0, errors.New("the process has no vDSO")
}

// clockFunction returns the offset of the function to replace. The function must be large enough.
func clockFunction(image []byte) (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(clockCode)) {
			return s.Value, nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime that is long enough")
}

// anyThreadIn waits until all threads of a process have stopped, and reports whether one of them is executing a piece
// of code.
func anyThreadIn(pid int, from, length uint64) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		deadline := time.Now().Add(10 * time.Second)
		for {
			stat, err := os.ReadFile(thread + "/stat")
			if err != nil {
				return false, err
			}
			if _, state, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(state, "T") {
				break
			}
			if time.Now().After(deadline) {
				return false, fmt.Errorf("%s does not stop", thread)
			}
			time.Sleep(time.Millisecond)
		}
		where, err := os.ReadFile(thread + "/syscall") // the last field is the program counter
		if err != nil {
			return false, err
		}
		fields := strings.Fields(string(where))
		counter, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil {
			return false, fmt.Errorf("%s is at %q: %w", thread, where, err)
		}
		if counter > from && counter < from+length {
			return true, nil
		}
	}
	return false, nil
}
