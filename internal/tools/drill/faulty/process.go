package faulty

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"portico.dev/internal/pki"
)

// A server can run in a separate process, which can be stopped as a whole. Config.Command starts it with the
// listening socket as file descriptor 3 and a processConfig on standard input. The process exits when that input
// ends.

// processConfig is the configuration of such a process.
type processConfig struct {
	Group       string
	Stores      bool
	Certificate []byte
	Key         []byte
}

// processStart bounds the start of a process.
const processStart = 10 * time.Second

// ServeProcess is the entry point for the command in Config.Command, which passes its standard input and output and
// file descriptor 3. It returns when the input or ctx ends.
func ServeProcess(ctx context.Context, in io.Reader, out io.Writer, socket *os.File) error {
	decoder := json.NewDecoder(in)
	var cfg processConfig
	if err := decoder.Decode(&cfg); err != nil {
		return fmt.Errorf("this command is started by drills: read its configuration: %w", err)
	}
	l, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("this command is started by drills: use file descriptor 3: %w", err)
	}
	_ = socket.Close() // l holds a duplicate
	shown := &pki.KeyPair{}
	if err := shown.Set(cfg.Certificate, cfg.Key); err != nil {
		return err
	}
	s := newServer(Config{Group: cfg.Group, Stores: cfg.Stores}, &identity{shown: shown}, newStore())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // only the end of the input matters
	}()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	return s.serve(ctx, newFaultListenerOf(l, listenTCP))
}

// runProcess runs the command until ctx ends.
func (s *Server) runProcess(ctx context.Context) error {
	l, err := net.Listen("tcp", s.cfg.Address)
	if err != nil {
		return fmt.Errorf("listen for the extension server: %w", err)
	}
	s.gate = newFaultListenerOf(l, listenTCP)
	socket, err := l.(*net.TCPListener).File() //nolint:forcetypeassert // it is one of TCP
	if err != nil {
		return errors.Join(err, l.Close())
	}
	cmd := exec.CommandContext(ctx, s.cfg.Command[0], s.cfg.Command[1:]...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{socket}, os.Stderr
	cmd.WaitDelay = time.Second
	endWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	err = cmd.Start()
	_, _ = socket.Close(), l.Close() // the process inherited it
	if err != nil {
		return fmt.Errorf("start the extension server: %w", err)
	}
	certificate, key, err := s.identity.issue(Healthy)
	if err == nil {
		err = json.NewEncoder(in).Encode(processConfig{Group: s.cfg.Group, Stores: s.cfg.Stores, Certificate: certificate, Key: key})
	}
	if err == nil {
		late := time.AfterFunc(processStart, func() { _ = cmd.Process.Kill() })
		_, err = bufio.NewReader(out).ReadString('\n')
		late.Stop()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(fmt.Errorf("start the extension server: %w", err), cmd.Wait())
	}
	s.mu.Lock()
	s.process = cmd.Process
	s.mu.Unlock()
	close(s.ready)
	err = cmd.Wait()
	_ = in.Close() // the process has exited
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the process of the extension server ended: %w", err)
}

// setProcessFault implements SetFault for a separate process.
func (s *Server) setProcessFault(f Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f {
	case Stopped:
		return stopProcess(s.process)
	case Healthy:
		return continueProcess(s.process)
	}
	return fmt.Errorf("fault %d is not for a process of its own", f)
}
