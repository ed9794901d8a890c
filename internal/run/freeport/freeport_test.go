package freeport

import (
	"net"
	"strconv"
	"testing"
)

func TestPortsAreUnique(t *testing.T) {
	var ports Ports
	given := map[int]bool{}
	for range 50 {
		port, err := ports.Free()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || port < firstPort || port >= lastPort {
			t.Fatalf("Free() = %d, want an unused port from %d to %d; used: %v", port, firstPort, lastPort, given)
		}
		given[port] = true
	}
}

func TestPortInUseIsSkipped(t *testing.T) {
	var ports Ports
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ports.next = port
	if again, err := ports.Free(); err != nil || again == port {
		t.Errorf("Free() = %d, %v, want another port than %d", again, err, port)
	}
}
