package environment

import (
	"context"
	"errors"
	"os"
	"time"

	"portico.dev/e2e/bench/measure"
)

// Interval is what one server and those around it did while clients sent requests.
type Interval struct {
	Answer
	// CPU of one request, in each process.
	Server, Backend, Client time.Duration
	// Allocations of one request, in the server; zero of one that is not asked.
	Allocations float64
	// Peak is the peak resident memory of the server, in bytes, BackendPeak of the backend.
	Peak, BackendPeak int64
}

// Measure lets the clients send requests for a while, after a moment in which connections and buffers are made.
func (c *LoadGenerator) Measure(ctx context.Context, backend *Server, warm, d time.Duration) (s Interval, err error) {
	if err := resetPeaks(c.server, backend); err != nil {
		return s, err
	}
	if _, err := c.Run(ctx, warm); err != nil {
		return s, err
	}
	telling, before, err := c.told()
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

// resetPeaks makes peaks begin anew.
func resetPeaks(server, backend *Server) error {
	return errors.Join(measure.ResetPeakRSS(server.PID), measure.ResetPeakRSS(backend.PID))
}

// peaks are peak resident memory, in bytes.
func peaks(server, backend *Server) (of, behind int64, err error) {
	if of, err = measure.PeakRSS(server.PID); err != nil {
		return 0, 0, err
	}
	behind, err = measure.PeakRSS(backend.PID)
	return of, behind, err
}

// told is how many allocations the server has made, and how many it makes to tell.
func (c *LoadGenerator) told() (telling, total float64, err error) {
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

// clocks are of the server, the backend and this process, which is the client.
func clocks(server, backend *Server) (c [3]time.Duration, err error) {
	for i, pid := range []int{server.PID, backend.PID, os.Getpid()} {
		if c[i], err = measure.CPU(pid); err != nil {
			return c, err
		}
	}
	return c, nil
}
