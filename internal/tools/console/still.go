package console

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"portico.dev/internal/tools/doctor"
)

// Still is a console whose clock moves only in Read. Pictures of its page do not depend on the time at which they are
// taken, which the tests in e2e/console/pictures require.
type Still struct {
	console *Console
	clock   atomic.Int64 // Unix nanoseconds
}

// NewStill is New for a console whose clock shows start.
func NewStill(cfg Config, start time.Time) (*Still, error) {
	s := &Still{}
	s.clock.Store(start.UnixNano())
	cfg.now = func() time.Time { return time.Unix(0, s.clock.Load()).UTC() }
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	s.console = c
	return s, nil
}

// URL returns the address of the page, with the token, which works once.
func (s *Still) URL() string { return s.console.URL() }

// Read moves the clock by d, and then reads every source once.
func (s *Still) Read(ctx context.Context, d time.Duration) {
	s.clock.Add(int64(d))
	for _, source := range s.console.sources() {
		s.console.readOnce(ctx, source)
	}
}

// ShowServer sets the address of the API server that the page shows until the version is read again.
func (s *Still) ShowServer(address string) {
	s.console.state.update(func() { s.console.state.overview.Server = address })
}

// ShowReports adds a completed run of the doctor that examined the given number of APIServices. Within half a minute of its
// start the page of target does not run the doctor by itself.
func (s *Still) ShowReports(target string, began, ended time.Time, checked int, reports ...*doctor.Report) {
	jobs := s.console.jobs
	jobs.change(func() {
		jobs.last++
		one := &job{
			ID: jobs.last, Kind: "doctor", Target: target, Began: began, Ended: ended, State: "done", Checked: checked, Broken: doctor.Broken(reports),
			reports: reports,
		}
		jobs.begun[jobTarget{one.Kind, target}] = one
		jobs.all = append([]*job{one}, jobs.all...)
	})
}

// Run serves the page, with a handler around the console's, until ctx ends, and returns when all its goroutines have
// ended. It reads no source.
func (s *Still) Run(ctx context.Context, wrap func(http.Handler) http.Handler) error {
	s.console.handler = wrap(s.console.handler)
	return s.console.run(ctx, func(context.Context) {})
}
