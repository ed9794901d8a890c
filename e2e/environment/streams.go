package environment

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"portico.dev/e2e/measure"
)

const (
	// perStreamConnection is the number of watches that share an HTTP/2 connection.
	perStreamConnection = 50
	// openers is the number of watches that are opened concurrently.
	openers = 32
)

// Streams is a set of open watches.
type Streams struct {
	server  *Server
	clients []*http.Client
	end     context.CancelFunc
	reading sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	listening bool
	delays    []time.Duration
	broken    error
}

// Delivery contains the cost of events while streams were open.
type Delivery struct {
	Events   int
	P50, P99 time.Duration
	// CPU time per event, in each process.
	Server, Backend, Client time.Duration
	// Peak is the peak resident memory of the server, in bytes. BackendPeak is the peak of the backend.
	Peak, BackendPeak int64
}

// Open opens n watches and waits until each has received its headers. Close ends them.
func Open(ctx context.Context, s *Server, ask Ask, n int) (*Streams, error) {
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	all := &Streams{server: s, end: end}
	each := 1
	if ask.HTTP2 {
		each = perStreamConnection
	}
	for range (n + each - 1) / each {
		client, err := NewClient(s, ask.HTTP2)
		if err != nil {
			return nil, err
		}
		all.clients = append(all.clients, client)
	}
	err := Concurrency(ctx, openers, 0, n, func(_ context.Context, i int) error { return all.open(living, all.clients[i/each], ask) })
	if err != nil {
		all.Close()
		return nil, fmt.Errorf("%s: open watches: %w", s.Name, err)
	}
	return all, nil
}

func (s *Streams) open(ctx context.Context, client *http.Client, ask Ask) error {
	r, err := NewRequest(ctx, s.server, ask, "")
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // may contain an explanation
		_ = resp.Body.Close()
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	s.reading.Go(func() {
		defer resp.Body.Close()
		s.read(ctx, resp.Body)
	})
	return nil
}

var sent = []byte(`"sent":"`)

// read reads events until the stream ends. Only Close may end it.
func (s *Streams) read(ctx context.Context, body io.Reader) {
	lines := bufio.NewReaderSize(body, 2<<10)
	for within := false; ; {
		line, err := lines.ReadSlice('\n')
		begins := !within
		within = errors.Is(err, bufio.ErrBufferFull) // the time is at the beginning of a long line
		if err != nil && !within {
			if ctx.Err() == nil {
				s.mu.Lock()
				s.broken = fmt.Errorf("%s: a watch ended: %w", s.server.Name, err)
				s.mu.Unlock()
			}
			return
		}
		_, rest, found := bytes.Cut(line, sent)
		if !found || !begins {
			continue
		}
		text, _, _ := bytes.Cut(rest, []byte(`"`))
		at, err := strconv.ParseInt(string(text), 10, 64)
		if err == nil {
			s.record(time.Since(time.Unix(0, at)))
		}
	}
}

func (s *Streams) record(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		s.delays = append(s.delays, delay)
	}
}

// Measure records deliveries for the duration d.
func (s *Streams) Measure(ctx context.Context, backend *Server, warm, d time.Duration) (Delivery, error) {
	if err := resetPeaks(s.server, backend); err != nil {
		return Delivery{}, err
	}
	if err := Pause(ctx, warm); err != nil {
		return Delivery{}, err
	}
	was, err := clocks(s.server, backend)
	if err != nil {
		return Delivery{}, err
	}
	s.listen(true)
	if err := Pause(ctx, d); err != nil {
		return Delivery{}, err
	}
	s.listen(false)
	is, err := clocks(s.server, backend)
	if err != nil {
		return Delivery{}, err
	}
	s.mu.Lock()
	delays, broken := slices.Clone(s.delays), s.broken
	s.delays = nil
	s.mu.Unlock()
	switch {
	case broken != nil:
		return Delivery{}, broken
	case len(delays) == 0:
		return Delivery{}, fmt.Errorf("%s: no event was delivered", s.server.Name)
	}
	slices.Sort(delays)
	n := time.Duration(len(delays))
	peak, behind, err := peaks(s.server, backend)
	return Delivery{
		Events: len(delays), P50: measure.Quantile(delays, 0.5), P99: measure.Quantile(delays, 0.99),
		Server: (is[0] - was[0]) / n, Backend: (is[1] - was[1]) / n, Client: (is[2] - was[2]) / n, Peak: peak, BackendPeak: behind,
	}, err
}

func (s *Streams) listen(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = on
}

// Broken returns the error of a stream that ended unexpectedly, or nil.
func (s *Streams) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Close ends the watches and waits for them.
func (s *Streams) Close() {
	s.end()
	s.reading.Wait()
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

// Pause waits for the duration d or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
