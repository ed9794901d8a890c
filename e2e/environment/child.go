package environment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// roleVariable is the environment variable with the role of a child process.
const roleVariable = "PORTICO_BENCH_ROLE"

// commands is the configuration of a child, sent in one line on its standard input.
type commands struct {
	CA                []byte
	Serving, Client   pair
	Listen            string // address of a backend; empty for a free port
	Backend           string // address to which a proxy sends requests
	BackendServerName string
	OwnBackends       int // number of backends
	OpenAPIBytes      int // size of each document; 0 for the size of a group with two or three kinds
}

type pair struct{ Certificate, Key []byte }

// role is a function of a child process. It announces its address before it serves, and serves until its standard
// input ends.
type role func(o *commands, announce announcement) error

// announcement reports the address of a child, and what it counts, by query.
type announcement func(address string, counts map[string]func() int64) error

// Queries to a child. Every child answers askMemory.
const (
	askMemory      = "memory"
	askRequests    = "requests"
	askConnections = "connections"
)

// Play runs this process in the role given by its environment. played is false without a role.
func Play(more map[string]func() error) (played bool, err error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	if other, ok := more[name]; ok {
		return true, other()
	}
	be, ok := map[string]role{
		"backend": serveBackend, "own-backends": serveOwnBackends, "bare-h2": serveBare(true), "bare-h1": serveBare(false),
		"floor": serveFloor, "floor-library": serveLibraryFloor, "floor-relay": serveRelayFloor,
	}[name]
	if !ok {
		return true, fmt.Errorf("no role %q", name)
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return true, fmt.Errorf("read orders: %w", err)
	}
	var o commands
	if err := json.Unmarshal(line, &o); err != nil {
		return true, fmt.Errorf("read orders: %w", err)
	}
	return true, be(&o, func(address string, counts map[string]func() int64) error {
		if _, err := fmt.Println(address); err != nil {
			return err
		}
		go answerQuestions(in, counts) // runs until standard input ends, which ends the process
		return nil
	})
}

// answerQuestions answers each query with a count, or with the number of allocations of this process.
func answerQuestions(in *bufio.Reader, counts map[string]func() int64) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		if count := counts[line[:len(line)-1]]; count != nil {
			fmt.Println(count())
			continue
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.Mallocs)
	}
}

// Child is this program running in another role.
type Child struct {
	// Address is the listening address.
	Address string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex // serializes queries
}

// Spawn starts this program in a role, with additional environment variables. The first line of its output is its
// address. Stop ends it.
func Spawn(role string, told any, env ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	c := &Child{cmd: exec.Command(self)}
	c.cmd.Env, c.cmd.Stderr = append(append(os.Environ(), roleVariable+"="+role), env...), os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.Address, err = c.Query(string(line))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", role, err), c.Stop())
	}
	return c, nil
}

// PID returns the process ID.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Query sends a query and returns the response. Each is one line.
func (c *Child) Query(query string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.in, query+"\n"); err != nil {
		return "", err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}

// Stop ends the process and waits for it.
func (c *Child) Stop() error {
	err := c.in.Close()
	late := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(err, c.cmd.Wait())
}
