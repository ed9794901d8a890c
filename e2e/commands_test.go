package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"portico.dev/e2e/programs"
)

// commands are the commands of stories, in addition to testscript's.
//
//	start NAME PROGRAM [ARGS...]       start one of our programs in the background
//	await NAME REGEXP [VAR]            wait until its output matches; VAR becomes the first group
//	end NAME [INT|TERM|KILL] [CODE]   signal it, wait for it, expect the exit code (0; none after KILL)
//	hang-up NAME                       send it SIGHUP
//	until REGEXP PROGRAM [ARGS...]     run one of our programs again and again until it succeeds and its stdout or stderr matches
//	until! REGEXP PROGRAM [ARGS...]    the same, until it fails and matches
//	exits CODE PROGRAM [ARGS...]       run a command that must end with exactly that code
//	capture VAR REGEXP                 set VAR to the first group of REGEXP in the last stdout
//	base64 VAR FILE                    set VAR to the contents of FILE, encoded
//	free-port VAR                      set VAR to a port of 127.0.0.1 that nobody listens on
//	occupy VAR                         set VAR to a port of 127.0.0.1 that is listened on until the story ends
//	stored SOCKET KEY...               wait until etcd has the keys; see stored_test.go
//	listening NAME                     print the sockets it listens on; see listening_test.go
//	http [FLAGS] METHOD URL            one HTTP request; see http_test.go
//	kubelet VAR FILE                   a kubelet's metrics: its port and the CA of its certificate; see measured_test.go
//	exporter FILE                      metrics to scrape, and the configuration of a Prometheus that does
//	identity ACCOUNT NAMESPACE FILE    a kubeconfig of a service account; see identity_test.go
//	certificate NAME                   ca.crt, tls.crt and tls.key for a server of that name
//	place FILE                         put a file into the directory declared, with its variables replaced
//	webhook PORT BUNDLE NAME...        an admission webhook for Services of these names; see webhook_test.go
//	autoscaler KIND NAMESPACE SELECTOR [METRIC]  read metrics as an autoscaler does; see autoscaler_test.go
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	plain := func(name string, least int, run func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("! makes no sense before %s", name)
			}
			if len(args) < least {
				ts.Fatalf("%s needs %d arguments at least", name, least)
			}
			run(ts, args)
		}
	}
	m := map[string]func(*testscript.TestScript, bool, []string){}
	add := func(name string, least int, run func(*testscript.TestScript, []string)) {
		m[name] = plain(name, least, run)
	}
	add("start", 2, start)
	add("await", 2, await)
	add("end", 1, end)
	add("hang-up", 1, hangUp)
	add("until", 2, func(ts *testscript.TestScript, args []string) { until(ts, true, args) })
	add("until!", 2, func(ts *testscript.TestScript, args []string) { until(ts, false, args) })
	add("exits", 2, exits)
	add("capture", 2, capture)
	add("base64", 2, encode)
	add("free-port", 1, freePort)
	add("occupy", 1, occupy)
	add("listening", 1, listening)
	add("stored", 2, stored)
	add("http", 2, request)
	add("kubelet", 2, kubelet)
	add("exporter", 1, exporter)
	add("autoscaler", 3, autoscaler)
	add("identity", 3, identity)
	add("certificate", 1, certificate)
	add("place", 1, place)
	add("webhook", 3, webhook)
	return m
}

// story holds the state that the commands of one story share.
type story struct {
	t         testing.TB
	env       *testscript.Env
	processes map[string]*programs.Process
}

type storyKey struct{}

func setUp(env *testscript.Env) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return errors.New("testscript was not started by go test")
	}
	env.Values[storyKey{}] = &story{t: t, env: env, processes: map[string]*programs.Process{}}
	env.Setenv("PATH", binaries+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("HOME", env.WorkDir) // kubectl keeps its discovery cache there
	return nil
}

func storyOf(ts *testscript.TestScript) *story { return ts.Value(storyKey{}).(*story) }

func (s *story) process(ts *testscript.TestScript, name string) *programs.Process {
	p, ok := s.processes[name]
	if !ok {
		ts.Fatalf("no process has the name %s, want a started one", name)
	}
	return p
}

func start(ts *testscript.TestScript, args []string) {
	s := storyOf(ts)
	p, err := startProcess(args[0], ts.MkAbs("."), environment(ts), args[1], args[2:]...)
	ts.Check(err)
	s.env.Defer(func() { p.Finish(s.t) }) // while its directory is there
	s.t.Cleanup(func() { p.Show(s.t) })   // when the result is known
	s.processes[args[0]] = p
}

func await(ts *testscript.TestScript, args []string) {
	p := storyOf(ts).process(ts, args[0])
	re := pattern(ts, args[1])
	var match []string
	ts.Check(programs.Poll(p.Exited(), func() error {
		if match = re.FindStringSubmatch(p.Output()); match == nil {
			return fmt.Errorf("the output of %s does not match %s", args[0], args[1])
		}
		return nil
	}))
	if len(args) > 2 {
		ts.Setenv(args[2], group(ts, match, args[1]))
	}
}

func end(ts *testscript.TestScript, args []string) {
	p := storyOf(ts).process(ts, args[0])
	sig, want := os.Signal(syscall.SIGINT), "0"
	if len(args) > 1 {
		switch args[1] {
		case "INT":
		case "TERM":
			sig = syscall.SIGTERM
		case "KILL":
			sig, want = syscall.SIGKILL, "-1"
		default:
			ts.Fatalf("signal %s is unknown, want INT, TERM or KILL", args[1])
		}
	}
	if len(args) > 2 {
		want = args[2]
	}
	code, err := p.Stop(sig)
	p.Ended = true
	ts.Check(err)
	if strconv.Itoa(code) != want {
		ts.Fatalf("%s ended with exit code %d, want %s", args[0], code, want)
	}
}

func hangUp(ts *testscript.TestScript, args []string) {
	ts.Check(syscall.Kill(storyOf(ts).process(ts, args[0]).PID(), syscall.SIGHUP))
}

// until runs the command repeatedly without output. Only the last output is shown, and later matched by stdout and stderr.
func until(ts *testscript.TestScript, success bool, args []string) {
	re := pattern(ts, args[0])
	var stdout, stderr bytes.Buffer
	ts.Check(programs.Poll(nil, func() error {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.Command(filepath.Join(binaries, args[1]), args[2:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), environment(ts), &stdout, &stderr
		err := cmd.Run()
		if (err == nil) != success || !(re.Match(stdout.Bytes()) || re.Match(stderr.Bytes())) {
			return fmt.Errorf("%v: %v\n%s%s", args[1:], err, &stdout, &stderr)
		}
		return nil
	}))
	_, err := stdout.WriteTo(ts.Stdout())
	ts.Check(err)
	_, err = stderr.WriteTo(ts.Stderr())
	ts.Check(err)
}

// environment returns the variables of a story's environment that the programs get.
func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "KUBECONFIG"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func exits(ts *testscript.TestScript, args []string) {
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func capture(ts *testscript.TestScript, args []string) {
	ts.Setenv(args[0], group(ts, pattern(ts, args[1]).FindStringSubmatch(ts.ReadFile("stdout")), args[1]))
}

func encode(ts *testscript.TestScript, args []string) {
	ts.Setenv(args[0], base64.StdEncoding.EncodeToString([]byte(ts.ReadFile(args[1]))))
}

func freePort(ts *testscript.TestScript, args []string) {
	port, err := ports.Free()
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(port))
}

func occupy(ts *testscript.TestScript, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], portOf(l))
}

func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

func pattern(ts *testscript.TestScript, s string) *regexp.Regexp {
	re, err := regexp.Compile("(?m)" + s)
	ts.Check(err)
	return re
}

func group(ts *testscript.TestScript, match []string, expr string) string {
	if len(match) < 2 {
		ts.Fatalf("regular expression %s has no match for its group, want one", expr)
	}
	return match[1]
}
