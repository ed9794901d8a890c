package logging

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// manual is a clock of zap that a test moves.
type manual struct{ now time.Time }

func (m *manual) Now() time.Time                       { return m.now }
func (m *manual) NewTicker(time.Duration) *time.Ticker { panic("not used") }

func TestA50LimitedLoggerBoundsLines(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	clock := &manual{time.Unix(1e9, 0)}
	log := Limited(zap.New(core, zap.WithClock(clock)))
	for range 10_000 {
		log.With(zap.Int("n", 1)).Warn("refused", zap.Error(errors.New("e")))
		log.Debug("refused") // not enabled: it takes no allowance
	}
	if got := seen.FilterMessage("refused").Len(); got != lineBurst {
		t.Errorf("lines of a flood = %d, want %d", got, lineBurst)
	}
	log.Info("another")
	if got := seen.FilterMessage("another").Len(); got != 1 {
		t.Errorf("lines of another message = %d, want 1", got)
	}

	seen.TakeAll()
	clock.now = clock.now.Add(time.Second)
	for range 10_000 {
		log.Warn("refused")
	}
	lines := seen.TakeAll()
	if len(lines) != linesPerSecond {
		t.Fatalf("lines a second later = %d, want %d", len(lines), linesPerSecond)
	}
	if got := lines[0].ContextMap()[SuppressedField]; got != int64(10_000-lineBurst) {
		t.Errorf("%s of the first = %v, want %d", SuppressedField, got, 10_000-lineBurst)
	}
	if got, has := lines[1].ContextMap()[SuppressedField]; has {
		t.Errorf("%s of the second = %v, want none", SuppressedField, got)
	}
}

func TestA50UnboundedMessagesShareOneLimit(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	log := Limited(zap.New(core, zap.WithClock(&manual{time.Unix(1e9, 0)})))
	for i := range 10_000 {
		log.Info(fmt.Sprintf("message %d", i))
	}
	if got, want := seen.Len(), maxMessages+lineBurst; got != want {
		t.Errorf("lines = %d, want %d", got, want)
	}
	for i := range 10_000 {
		log.Info(fmt.Sprintf("http: panic serving 192.0.2.1:%d", i))
	}
	if got, want := seen.Len(), maxMessages+lineBurst; got != want {
		t.Errorf("lines = %d, want %d", got, want)
	}
}

// A client with a token of no kind makes k8s.io/apiserver log an error for each request while a token webhook fails.
func TestA50LinesOfLibrariesAreBounded(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	log := zap.New(newRedactingCore(newLimitedCore(core)), zap.WithClock(&manual{time.Unix(1e9, 0)}))
	for i := range 10_000 {
		log.Error(fmt.Sprintf("Failed to make webhook authenticator request: attempt %d", i))
	}
	if got := seen.Len(); got != lineBurst {
		t.Errorf("lines = %d, want %d", got, lineBurst)
	}
}
