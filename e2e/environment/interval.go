package environment

import (
	"context"
	"errors"
	"os"
	"time"

	"portico.dev/e2e/measure"
)

// Interval contains the results of one server, its backend and its clients for one interval.
type Interval struct {
	Answer
	// CPU time per request, in each process.
	Server, Backend, Client time.Duration
	// Allocations per request in the server; zero if they are not counted.
	Allocations float64
	// Peak is the peak resident memory of the server, in bytes. BackendPeak is the peak of the backend.
	Peak, BackendPeak int64
}

// Measure sends requests for the duration d, after a warm-up that creates connections and buffers.
func (c *LoadGenerator) Measure(ctx context.Context, backend *Server, warm, d time.Duration) (s Interval, err error) {
	if err := resetPeaks(c.server, backend); err != nil {
		return s, err
	}
	if _, err := c.Run(ctx, warm); err != nil {
		return s, err
	}
	telling, before, err := c.measure()
	if err != nil {
		return s, err
	}
	was, err := clocks(c.server, backend)
	if err != nil {
		return s, err
	}
	if s.Answer, err = c.Run(ctx, d); err != nil {
		return s, err
	}
	is, err := clocks(c.server, backend)
	if err != nil {
		return s, err
	}
	after, err := c.counted()
	if err != nil {
		return s, err
	}
	n := time.Duration(s.Requests)
	s.Server, s.Backend, s.Client = (is[0]-was[0])/n, (is[1]-was[1])/n, (is[2]-was[2])/n
	s.Allocations = max(0, (after-before-telling)/float64(s.Requests))
	s.Peak, s.BackendPeak, err = peaks(c.server, backend)
	return s, err
}

// resetPeaks resets the peaks of resident memory.
func resetPeaks(server, backend *Server) error {
	return errors.Join(measure.ResetPeakRSS(server.PID), measure.ResetPeakRSS(backend.PID))
}

// peaks returns the peaks of resident memory, in bytes.
func peaks(server, backend *Server) (of, behind int64, err error) {
	if of, err = measure.PeakRSS(server.PID); err != nil {
		return 0, 0, err
	}
	behind, err = measure.PeakRSS(backend.PID)
	return of, behind, err
}

// measure returns the total number of allocations of the server, and the number that the query itself causes.
func (c *LoadGenerator) measure() (telling, total float64, err error) {
	first, err := c.counted()
	if err != nil {
		return 0, 0, err
	}
	second, err := c.counted()
	return second - first, second, err
}

func (c *LoadGenerator) counted() (float64, error) {
	if c.server.allocations == nil {
		return 0, nil
	}
	return c.server.Allocations()
}

// clocks returns the CPU times of the server, the backend and this process, which is the client.
func clocks(server, backend *Server) (c [3]time.Duration, err error) {
	for i, pid := range []int{server.PID, backend.PID, os.Getpid()} {
		if c[i], err = measure.CPU(pid); err != nil {
			return c, err
		}
	}
	return c, nil
}
