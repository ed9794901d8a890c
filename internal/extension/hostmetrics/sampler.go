package hostmetrics

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"
)

// firstWindow is the first window's length: short, so that a server that has just started has an answer soon.
const firstWindow = time.Second

// Usage is what the machine used during one window.
type Usage struct {
	// Cores is CPU time per time: 1.5 is one and a half processors busy.
	Cores float64
	// WorkingSet is memory in bytes that cannot be reclaimed at once: MemTotal - MemAvailable.
	WorkingSet uint64
	// Timestamp is the end of the window, Window its measured length.
	Timestamp time.Time
	Window    time.Duration
}

// Config makes a Sampler.
type Config struct {
	// ProcPath is where procfs is mounted. Default /proc.
	ProcPath string
	// Resolution is the length of a window. Default 10 s.
	Resolution time.Duration
	// Logger is told when a reading fails. Default: silence.
	Logger *zap.Logger
}

// Sampler reads the machine's counters again and again. Run drives it; Latest is safe at any time.
type Sampler struct {
	config  Config
	fs      procfs.FS
	latest  atomic.Pointer[Usage]
	ticked  atomic.Int64 // unix nanoseconds of the last reading, good or not
	failure atomic.Pointer[error]
}

// New makes a sampler. The error names a ProcPath that is no procfs.
func New(c Config) (*Sampler, error) {
	if c.ProcPath == "" {
		c.ProcPath = procfs.DefaultMountPoint
	}
	if c.Resolution <= 0 {
		c.Resolution = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	fs, err := procfs.NewFS(c.ProcPath)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	return &Sampler{config: c, fs: fs}, nil
}

// Latest is the newest measurement. It is false before the second reading, and when the last reading failed: old
// numbers under a new request would be a lie that autoscalers act on.
func (s *Sampler) Latest() (Usage, bool) {
	u := s.latest.Load()
	if u == nil {
		return Usage{}, false
	}
	return *u, true
}

// Run samples until ctx ends. A reading that fails is logged and tried again at the next tick.
func (s *Sampler) Run(ctx context.Context) error {
	previous, err := s.read()
	s.note(err)
	next := time.NewTimer(min(firstWindow, s.config.Resolution))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		next.Reset(s.config.Resolution)
		current, err := s.read()
		if err == nil {
			err = s.measure(previous, current)
		}
		s.note(err)
		previous = current
	}
}

func (s *Sampler) measure(from, to reading) error {
	u, err := usage(from, to)
	if err != nil {
		return err
	}
	s.latest.Store(&u)
	return nil
}

func (s *Sampler) note(err error) {
	s.ticked.Store(time.Now().UnixNano())
	if err == nil {
		s.failure.Store(nil)
		return
	}
	s.latest.Store(nil)
	s.failure.Store(&err)
	s.config.Logger.Warn("read host metrics", zap.Error(err))
}

// Stored is nil once there is something to answer (metrics-server's readiness check metric-storage-ready).
func (s *Sampler) Stored(context.Context) error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if s.latest.Load() == nil {
		return errors.New("no metrics to store yet")
	}
	return nil
}

// Timely is nil while readings come as often as they should (metrics-server's liveness check
// metric-collection-timely).
func (s *Sampler) Timely(context.Context) error {
	last := s.ticked.Load()
	if last == 0 {
		return nil
	}
	if age := time.Since(time.Unix(0, last)); age > 3*s.config.Resolution {
		return fmt.Errorf("no reading for %s, expected every %s", age.Round(time.Second), s.config.Resolution)
	}
	return nil
}
