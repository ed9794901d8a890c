package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// readyWithin bounds the wait for the front door to print how it is reached.
	readyWithin = 2 * time.Minute
	// stopWithin bounds the wait for its end after an interrupt.
	stopWithin = time.Minute
)

// front is a front door that was started for the run.
type front struct {
	cmd        *exec.Cmd
	kubeconfig string
	drained    chan struct{} // closed when its output has ended
}

// startFront runs `aggregator dev` on a free port with its data in dir. Its log is dir/front.log. Old versions are compacted
// every minute, because one spec waits for it.
func startFront(program, dir string) (*front, error) {
	log, err := os.Create(filepath.Join(dir, "front.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	f := &front{drained: make(chan struct{})}
	f.cmd = exec.Command(program, "dev", "--secure-port", "0", "--data-dir", filepath.Join(dir, "data"),
		"--etcd-compaction-interval", "1m")
	f.cmd.Stderr = log
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the front door: %w", err)
	}
	found := make(chan string, 1)
	go func() {
		defer close(f.drained)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if path, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "export KUBECONFIG="); ok {
				found <- strings.Trim(path, "'")
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	select {
	case f.kubeconfig = <-found:
		return f, nil
	case <-f.drained:
		err = errors.New("it ended")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("wait for the front door (its log is %s): %w", log.Name(), err), f.stop())
}

// stop ends the front door and waits for its end.
func (f *front) stop() error {
	if err := f.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	hurry := time.AfterFunc(stopWithin, func() { _ = f.cmd.Process.Kill() })
	defer hurry.Stop()
	<-f.drained
	return f.cmd.Wait()
}
