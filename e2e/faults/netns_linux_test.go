package faults

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace creates an endpoint in a separate network namespace, behind a bridge. Removing the bridge's port makes it a black
// hole: packets are dropped without a reset or an ICMP message. The error names the missing capability of this machine.
func inNamespace(t testing.TB) (*blackHole, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root")
	}
	id := fmt.Sprintf("%x", os.Getpid()&0xffffff)
	space, bridge, port, inside := "portico-"+id, "pb"+id, "pp"+id, "pi"+id
	// One of the networks that are set aside for tests of this kind (RFC 2544).
	network := fmt.Sprintf("198.18.%d.", os.Getpid()&0xff)
	commands := []string{
		"netns add " + space,
		"link add " + bridge + " type bridge",
		"addr add " + network + "1/24 dev " + bridge,
		"link set " + bridge + " up",
		"link add " + port + " type veth peer name " + inside,
		"link set " + inside + " netns " + space,
		"link set " + port + " master " + bridge,
		"link set " + port + " up",
		"-n " + space + " addr add " + network + "2/24 dev " + inside,
		"-n " + space + " link set " + inside + " up",
		"-n " + space + " link set lo up",
	}
	t.Cleanup(func() {
		for _, c := range []string{"link del " + port, "link del " + bridge, "netns del " + space} {
			_ = ip(c) // an interface that was not created cannot be removed
		}
	})
	for _, c := range commands {
		if err := ip(c); err != nil {
			return nil, err
		}
	}
	l, err := listenIn("/var/run/netns/"+space, network+"2:0")
	if err != nil {
		return nil, err
	}
	must := func(command string) func() {
		return func() {
			if err := ip(command); err != nil {
				t.Error(err)
			}
		}
	}
	return &blackHole{
		listener: l, address: l.Addr().String(),
		swallow: must("link set " + port + " nomaster"), restore: must("link set " + port + " master " + bridge),
	}, nil
}

func ip(command string) error {
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}

// listenIn listens in another network namespace: a socket stays in the one that it was made in.
func listenIn(space, address string) (net.Listener, error) {
	type result struct {
		l   net.Listener
		err error
	}
	made := make(chan result)
	go func() {
		// The thread ends with this goroutine, which does not unlock it: no other goroutine runs in the namespace.
		runtime.LockOSThread()
		l, err := func() (net.Listener, error) {
			there, err := os.Open(space)
			if err != nil {
				return nil, err
			}
			defer func() { _ = there.Close() }()
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("enter %s: %w", space, err)
			}
			return net.Listen("tcp", address)
		}()
		made <- result{l, err}
	}()
	r := <-made
	return r.l, r.err
}
