package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// stuck is the environment variable that makes the test binary a program that does not end after a signal.
const stuck = "PROGRAM_TEST_STUCK"

func TestMain(m *testing.M) {
	if os.Getenv(stuck) != "" {
		ctx, cancel := Context()
		defer cancel()
		fmt.Println("started")
		<-ctx.Done()
		fmt.Println("stopping")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSecondSignalEndsProcessThatDoesNotStop(t *testing.T) {
	for _, c := range []struct {
		first, second syscall.Signal
		want          int
	}{
		{syscall.SIGINT, syscall.SIGINT, 130},
		{syscall.SIGTERM, syscall.SIGTERM, 143},
		{syscall.SIGTERM, syscall.SIGINT, 130},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), stuck+"=1")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(stdout)
		for _, step := range []struct {
			line   string
			signal syscall.Signal
		}{{"started\n", c.first}, {"stopping\n", c.second}} {
			if line, err := lines.ReadString('\n'); err != nil || line != step.line {
				t.Fatalf("output before %v = %q, %v; want %q", step.signal, line, err, step.line)
			}
			if err := cmd.Process.Signal(step.signal); err != nil {
				t.Fatal(err)
			}
		}
		err = cmd.Wait()
		var exited *exec.ExitError
		if !errors.As(err, &exited) || exited.ExitCode() != c.want {
			t.Errorf("end after %v and %v: %v, want exit status %d", c.first, c.second, err, c.want)
		}
	}
}
