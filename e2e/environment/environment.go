package environment

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"portico.dev/e2e/programs"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

const (
	// Namespace contains the Services of backends, and is the namespace in which the ordinary user has permissions.
	Namespace = "bench"
	// AdminToken authenticates a member of system:masters, UserToken alice, who has the permissions of a Role.
	AdminToken, UserToken = "bench-admin-token", "bench-user-token"
)

// Environment is a directory with certificates and programs, and the servers started in it.
type Environment struct {
	dir     string
	program string // the aggregator, once built
	ca      *pki.Authority
	orders  commands
	log     *os.File
	ports   freeport.Ports
	ends    []func() error
}

// New creates a directory. Close stops everything that was started in it. program is the aggregator to measure; if it
// is empty, the aggregator is built from the tree.
func New(program string) (y *Environment, err error) {
	y = &Environment{program: program}
	if y.dir, err = os.MkdirTemp("", "portico-bench-"); err != nil {
		return nil, err
	}
	y.ends = append(y.ends, func() error { return os.RemoveAll(y.dir) })
	if err := y.furnish(); err != nil {
		return nil, errors.Join(err, y.Close())
	}
	return y, nil
}

func (y *Environment) furnish() (err error) {
	if y.log, err = os.Create(filepath.Join(y.dir, "log")); err != nil {
		return err
	}
	y.ends = append(y.ends, y.log.Close)
	if y.ca, err = pki.NewAuthority("bench"); err != nil {
		return err
	}
	y.orders.CA, y.orders.BackendServerName = y.ca.PEM(), ServiceOf(0)+"."+Namespace+".svc"
	y.orders.Serving.Certificate, y.orders.Serving.Key, err = y.ca.Issue(pki.Leaf{
		CommonName: "bench-server", DNSNames: []string{"*." + Namespace + ".svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, TTL: 24 * time.Hour,
	})
	if err != nil {
		return err
	}
	y.orders.Client.Certificate, y.orders.Client.Key, err = y.ca.Issue(pki.Leaf{CommonName: "front-proxy-client", Client: true, TTL: 24 * time.Hour})
	return err
}

// Dir creates a directory in the environment and returns its path.
func (y *Environment) Dir(name string) (string, error) {
	dir := filepath.Join(y.dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// Close stops the servers in reverse order.
func (y *Environment) Close() error {
	var err error
	for len(y.ends) > 0 {
		last := len(y.ends) - 1
		err, y.ends = errors.Join(err, y.ends[last]()), y.ends[:last]
	}
	return err
}

// Backend starts the backend. It must be called once.
func (y *Environment) Backend() (*Server, error) {
	s, err := y.child("backend")
	if err != nil {
		return nil, err
	}
	y.orders.Backend = s.Address
	return s, nil
}

// Bare starts a bare proxy to the backend.
func (y *Environment) Bare(http2 bool) (*Server, error) {
	if http2 {
		return y.child("bare-h2")
	}
	return y.child("bare-h1")
}

func (y *Environment) child(role string) (*Server, error) { return y.childOf(role, y.orders) }

func (y *Environment) childOf(role string, orders commands, env ...string) (*Server, error) {
	c, err := Spawn(role, orders, env...)
	if err != nil {
		return nil, err
	}
	y.ends = append(y.ends, c.Stop)
	return y.serverOf(role, c), nil
}

// serverOf returns the server that a child is.
func (y *Environment) serverOf(role string, c *Child) *Server {
	number := func(question string) func() (float64, error) {
		return func() (n float64, err error) {
			line, err := c.Query(question)
			if err != nil {
				return 0, err
			}
			_, err = fmt.Sscan(line, &n)
			return n, err
		}
	}
	return &Server{
		Name: role, Address: c.Address, PID: c.PID(), roots: y.ca.PEM(),
		allocations: number(askMemory), requests: number(askRequests), connections: number(askConnections),
	}
}

// Aggregator returns the path of the aggregator. It builds the program if necessary.
func (y *Environment) Aggregator() (string, error) {
	if y.program == "" {
		dir, err := y.Dir("programs")
		if err != nil {
			return "", err
		}
		if err := programs.Build(dir, "aggregator"); err != nil {
			return "", err
		}
		y.program = filepath.Join(dir, "aggregator")
	}
	return y.program, nil
}

// port returns a free port, for programs that cannot choose one themselves.
func (y *Environment) port() (string, error) {
	port, err := y.ports.Free()
	return strconv.Itoa(port), err
}

// Log returns the end of the front doors' log, to explain failures.
func (y *Environment) Log() string {
	const end = 4 << 10
	data, err := os.ReadFile(y.log.Name())
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	return string(data[max(0, len(data)-end):])
}

// Server is a server under load.
type Server struct {
	Name    string
	Address string
	PID     int

	roots       []byte
	allocations func() (float64, error) // nil if counting would cost more than the measured work
	requests    func() (float64, error) // of the backend
	connections func() (float64, error) // of the backend
}

// At returns a server with the same certificate at another address, such as that of a load balancer.
func (s *Server) At(name, address string) *Server {
	return &Server{Name: name, Address: address, roots: s.roots}
}

// Requests returns the number of requests for objects since the start of the backend. Other servers do not support
// it.
func (s *Server) Requests() (float64, error) { return s.requests() }

// Connections returns the number of open connections of the backend. Other servers do not support it.
func (s *Server) Connections() (float64, error) { return s.connections() }

// Allocations returns the number of objects that the process has allocated since its start.
func (s *Server) Allocations() (float64, error) { return s.allocations() }
