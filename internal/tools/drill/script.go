package drill

import (
	"context"
	"fmt"
	"time"

	"portico.dev/internal/run"
	"portico.dev/internal/tools/drill/faulty"
)

const (
	// baseline is how long traffic runs before the fault, and settled how long after the recovery.
	baseline = 1500 * time.Millisecond
	settled  = time.Second
	// hold is how long the drill observes a fault after its detection.
	hold = 2 * time.Second
	// recoverLimit bounds the wait for the recovery.
	recoverLimit = 45 * time.Second
)

// brokenBy returns a script with a fault that the front door must detect.
func brokenBy(f faulty.Fault, detectLimit time.Duration) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := s.breakWith(ctx, f); err != nil {
			return err
		}
		if err := s.detect(ctx, detectLimit); err != nil {
			return err
		}
		if err := s.wait(ctx, hold); err != nil {
			return err
		}
		return s.mend(ctx)
	}
}

// faultDuration returns a script with a fault that the front door must tolerate.
func faultDuration(f faulty.Fault, length time.Duration) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := s.breakWith(ctx, f); err != nil {
			return err
		}
		if err := s.wait(ctx, length); err != nil {
			return err
		}
		return s.mend(ctx)
	}
}

// breakWith injects the fault after baseline traffic.
func (s *Stage) breakWith(ctx context.Context, f faulty.Fault) error {
	s.progress("before the fault")
	if err := s.wait(ctx, baseline); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Broke = time.Now() })
	s.progress("injecting the fault")
	err := s.runFault(f)
	s.record.mark(func(t *Times) { t.Broken = time.Now() })
	return err
}

func (s *Stage) runFault(f faulty.Fault) error {
	if err := s.subject.SetFault(f); err != nil {
		return fmt.Errorf("bring the fault about: %w", err)
	}
	return nil
}

// detect waits until the condition has turned. If it does not, the expectations report that.
func (s *Stage) detect(ctx context.Context, limit time.Duration) error {
	took, came, err := s.until(ctx, limit, func(context.Context) (detected bool) {
		s.record.read(func(h *History) { _, detected = h.Detected() })
		return detected
	})
	if err == nil && came {
		s.progress(fmt.Sprintf("detected after %s", took.Round(10*time.Millisecond)))
	}
	return err
}

// mend ends the fault and waits for the recovery.
func (s *Stage) mend(ctx context.Context) error {
	if err := s.endFault(); err != nil {
		return err
	}
	return s.recovery(ctx)
}

func (s *Stage) endFault() error {
	if err := s.runFault(faulty.Healthy); err != nil {
		return err
	}
	s.record.mark(func(t *Times) { t.Mended = time.Now() })
	s.progress("mended")
	return nil
}

func (s *Stage) recovery(ctx context.Context) error {
	took, came, err := s.until(ctx, recoverLimit, func(context.Context) (recovered bool) {
		s.record.read(func(h *History) {
			_, available := h.Recovered()
			_, served := h.served()
			recovered = available && served
		})
		return recovered
	})
	if err != nil {
		return err
	}
	if came {
		s.progress(fmt.Sprintf("recovered after %s", took.Round(10*time.Millisecond)))
	}
	return s.wait(ctx, settled)
}

func (s *Stage) wait(ctx context.Context, d time.Duration) error {
	if !run.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
