package docs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a bash that runs the commands of a page in order. Their variables stay set.
type shell struct {
	dir   string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed at the end of its output

	servers []server
	started int
}

// server is a command that runs until the page ends.
type server struct{ command, pid, log string }

const (
	marker = "__portico_docs_status__"
	// commandTime bounds a command.
	commandTime = 2 * time.Minute
	// maxOutput limits the stored output of a command.
	maxOutput = 4 << 20
)

func startShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	s := &shell{dir: dir, lines: make(chan string, 64)}
	s.cmd = exec.Command("bash", "--noprofile", "--norc")
	s.cmd.Dir, s.cmd.Env = dir, env
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with all that it starts
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = write, write
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("start of bash failed: %v, want no error", err)
	}
	_ = write.Close()
	go func() {
		defer close(s.lines)
		defer read.Close()
		in := bufio.NewScanner(read)
		in.Buffer(nil, maxOutput)
		for in.Scan() {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(func() { s.end(t) })
	return s
}

// run runs a command, and returns its output and its exit status.
func (s *shell) run(command string) (printed string, status int, err error) {
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null 2>&1; printf '\\n%s %%d\\n' $?\n", command, marker); err != nil {
		return "", 0, fmt.Errorf("bash has ended: %w", err)
	}
	deadline := time.NewTimer(commandTime)
	defer deadline.Stop()
	var out strings.Builder
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return out.String(), 0, errors.New("bash ended in the middle of it")
			}
			if rest, ok := strings.CutPrefix(line, marker+" "); ok {
				status, err := strconv.Atoi(rest)
				return strings.TrimSuffix(out.String(), "\n"), status, err
			}
			if out.Len() < maxOutput {
				out.WriteString(line + "\n")
			}
		case <-deadline.C:
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			return out.String(), 0, fmt.Errorf("it does not end within %s", commandTime)
		}
	}
}

// patience limits the wait for a page's output, on a machine where other pages start servers too.
const patience = 2 * time.Minute

// eventually calls try until it returns nil.
func eventually(try func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("after %s still: %w", patience, err)
		}
	}
}

// ready matches the output of servers that are ready.
var ready = regexp.MustCompile(`the front door is open|export KUBECONFIG=|INFO.*registered|Ctrl-C ends the console`)

// serve runs a command in the background, and waits until it serves.
func (s *shell) serve(command string) error {
	s.started++
	log := filepath.Join(s.dir, fmt.Sprintf("server-%d.log", s.started))
	printed, status, err := s.run(fmt.Sprintf("%s >%q 2>&1 & echo $!", command, log))
	if err != nil {
		return fmt.Errorf("%w: %s", err, printed)
	}
	if status != 0 {
		return fmt.Errorf("it cannot be started: exit status %d: %s", status, printed)
	}
	started := server{command: command, pid: strings.TrimSpace(printed), log: log}
	s.servers = append(s.servers, started)
	var ended error
	return errors.Join(eventually(func() error {
		text, err := os.ReadFile(log)
		if err == nil && !ready.Match(text) {
			err = fmt.Errorf("it does not serve: %s", text)
		}
		if err != nil && !started.alive() {
			s.servers = s.servers[:len(s.servers)-1]
			ended = fmt.Errorf("it has ended: %s", text)
			return nil
		}
		return err
	}), ended)
}

func (s server) alive() bool {
	pid, err := strconv.Atoi(s.pid)
	return err == nil && syscall.Kill(pid, 0) == nil
}

// stop stops the last started server whose command has the prefix. A server that has exited before has failed.
func (s *shell) stop(prefix string) error {
	last := len(s.servers) - 1
	for last >= 0 && !strings.HasPrefix(s.servers[last].command, prefix) {
		last--
	}
	if last < 0 {
		return fmt.Errorf("there is no server %q to stop", prefix)
	}
	server := s.servers[last]
	s.servers = slices.Delete(s.servers, last, last+1)
	printed, status, err := s.run("kill " + server.pid + "; wait " + server.pid)
	if err == nil && status != 0 {
		err = fmt.Errorf("it ended with exit status %d", status)
	}
	if err != nil {
		log, _ := os.ReadFile(server.log) // for the message only
		return fmt.Errorf("%s: %w: %s\n%s", server.command, err, printed, log)
	}
	return nil
}

// end stops the processes of the page.
func (s *shell) end(t *testing.T) {
	for len(s.servers) > 0 {
		if err := s.stop(""); err != nil {
			t.Error(err)
		}
	}
	_ = s.in.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range s.lines { // until the end
		}
		_ = s.cmd.Wait() // its status is the last command's
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		t.Error("bash did not exit within 30 s, want it to exit")
	}
}
