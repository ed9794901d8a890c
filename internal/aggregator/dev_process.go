package aggregator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/extserver"
	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/pkg/extension"
)

const (
	// DevExtserverCommand is the hidden command of aggregator that calls DevExtserver.
	DevExtserverCommand = "dev-extension-server"
	// devPause is long enough to try commands while the extension server is down.
	devPause = time.Minute
	// devReadyLine is printed by the process when the extension server is ready.
	devReadyLine = "ready"
)

// devProcess runs the extension server of `aggregator dev` in a child process, which users can stop to see a failure. It starts the
// process again after a pause.
type devProcess struct {
	program          string // path of aggregator
	kubeconfig, node string
	dataDir          string
	out              io.Writer
	pause            time.Duration // from the end of a process to the next start

	ready chan struct{} // closed when the first process is ready
	once  sync.Once
}

// pidFile contains the ID of the running process.
func (d *devProcess) pidFile() string { return filepath.Join(d.dataDir, "extserver.pid") }

// run returns when ctx ends, or with an error if the first process is never ready.
func (d *devProcess) run(ctx context.Context) error {
	log, err := os.Create(filepath.Join(d.dataDir, "extserver.log"))
	if err != nil {
		return fmt.Errorf("log of the extension server: %w", err)
	}
	defer func() { _ = log.Close() }() // the log is read while the process runs
	for {
		cause, err := d.runOnce(ctx, log)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !d.isReady():
			return fmt.Errorf("the extension server ended before it was ready: %s: see %s", cause, log.Name())
		}
		fmt.Fprintf(d.out, "The extension server has ended (%s). It starts again after a minute.\n", cause)
		pause := time.NewTimer(d.pause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// runOnce runs the process until it ends, and returns the cause. An error means that it could not be started.
func (d *devProcess) runOnce(ctx context.Context, log *os.File) (cause string, err error) {
	cmd := exec.CommandContext(ctx, d.program, DevExtserverCommand, "--kubeconfig", d.kubeconfig, "--node-name", d.node)
	cmd.Stderr = log
	// The process ends when its input ends, also if this process is killed. Ctrl-C reaches only this process, which stops the front
	// door first.
	input, err := cmd.StdinPipe()
	if err != nil {
		return "", fmt.Errorf("input of the extension server: %w", err)
	}
	cmd.Cancel = input.Close
	cmd.WaitDelay = run.CommandGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("output of the extension server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start the extension server: %w", err)
	}
	if err := pki.WriteFile(d.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return "", err
	}
	defer func() { _ = os.Remove(d.pidFile()) }() // it may be written again
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if lines.Text() == devReadyLine {
			d.announce(cmd.Process.Pid)
		}
	}
	if err := cmd.Wait(); err != nil {
		return err.Error(), nil
	}
	return cmd.ProcessState.String(), nil
}

func (d *devProcess) isReady() bool {
	select {
	case <-d.ready:
		return true
	default:
		return false
	}
}

func (d *devProcess) announce(pid int) {
	if d.isReady() {
		fmt.Fprintf(d.out, "The extension server runs again (process %d).\n", pid)
	}
	d.once.Do(func() { close(d.ready) })
}

// DevExtserver runs the extension server of `aggregator dev` with the metrics of a node until ctx or in ends. It writes a line to out
// when the extension server is ready.
func DevExtserver(ctx context.Context, kubeconfig, node string, in io.Reader, out io.Writer, log *zap.Logger) error {
	client, err := extserver.LoadClient(kubeconfig)
	if err != nil {
		return err
	}
	server, err := extserver.New(extserver.Options{
		Options: extension.Options{
			Client: client, BindAddress: "127.0.0.1", Port: 0, Register: true,
			ServiceNamespace: devNamespace, ServiceName: devName, Logger: log,
		},
		NodeName: node,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // until the process ends at the latest
		_, _ = io.Copy(io.Discard, in) // an error ends the input, too
		cancel()
	}()
	g := &run.Group{}
	g.Add(run.Member{Name: "extension server", Run: server.Run, Ready: server.Ready()})
	g.Add(run.Member{Name: "announcement", Run: func(ctx context.Context) error {
		if _, err := fmt.Fprintln(out, devReadyLine); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}})
	return g.Run(ctx)
}
