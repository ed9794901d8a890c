package logging

import (
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
)

func TestFailuresOfServerThatStartsAreNotWarnings(t *testing.T) {
	type want struct {
		level   zapcore.Level
		overdue bool
	}
	const almost = StartupGrace - time.Second
	for name, c := range map[string]struct {
		at        []time.Duration // failures
		succeeded time.Duration   // before the failures at this time or later; -1 is never
		want      []want
	}{
		"it never works": {[]time.Duration{0, almost, StartupGrace, StartupGrace + 1}, -1,
			[]want{{zapcore.InfoLevel, false}, {zapcore.InfoLevel, false}, {zapcore.WarnLevel, true}, {zapcore.WarnLevel, false}}},
		"it works, and goes away within the grace period": {[]time.Duration{0, time.Second, 2 * time.Second}, time.Second,
			[]want{{zapcore.InfoLevel, false}, {zapcore.WarnLevel, false}, {zapcore.WarnLevel, false}}},
		"it works from the start": {[]time.Duration{time.Hour}, 0, []want{{zapcore.WarnLevel, false}}},
		"its first failure is late": {[]time.Duration{time.Hour, time.Hour + almost}, -1,
			[]want{{zapcore.InfoLevel, false}, {zapcore.InfoLevel, false}}},
	} {
		var s Startup
		began := time.Now()
		for i, at := range c.at {
			if c.succeeded >= 0 && at >= c.succeeded {
				s.Succeeded()
			}
			if level, overdue := s.Failed(began.Add(at)); level != c.want[i].level || overdue != c.want[i].overdue {
				t.Errorf("%s: failure after %s: level %s, overdue %t; want %s, %t", name, at, level, overdue, c.want[i].level, c.want[i].overdue)
			}
		}
	}
}

func TestFailuresAreWarningsAfterSeveralRetries(t *testing.T) {
	for failures, want := range map[int]zapcore.Level{0: zapcore.InfoLevel, quietRetries - 1: zapcore.InfoLevel, quietRetries: zapcore.WarnLevel, 100: zapcore.WarnLevel} {
		if got := RetryLevel(failures); got != want {
			t.Errorf("RetryLevel(%d) = %s, want %s", failures, got, want)
		}
	}
}
