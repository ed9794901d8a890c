package store

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestSlowEtcdIsWarningOnlyIfItLasts(t *testing.T) {
	const message = "apply request took too long"
	for name, c := range map[string]struct {
		pause time.Duration // between two slow operations
		count int
		level zapcore.Level // of the log
		want  int           // warnings
	}{
		"a slow start":                     {time.Second, 29, zap.InfoLevel, 0},
		"a slow operation now and then":    {time.Minute, 100, zap.InfoLevel, 0},
		"a slow disk":                      {time.Second, 40, zap.InfoLevel, 1},
		"a disk that is slow for minutes":  {time.Second, 200, zap.InfoLevel, 3},
		"a slow start, with a debug level": {time.Second, 29, zap.DebugLevel, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(c.level)
				log := etcdLogger(zap.New(core)).With(zap.String("member", "a"))
				for range c.count {
					log.Warn(message, zap.String("took", "1s"))
					time.Sleep(c.pause)
				}
				warnings := logs.FilterLevelExact(zap.WarnLevel).FilterFieldKey("slow-since").Len()
				if warnings != c.want {
					t.Errorf("%d warnings, want %d", warnings, c.want)
				}
				others := 0
				if c.level == zap.DebugLevel {
					others = c.count - c.want
				}
				if n := logs.Len() - warnings; n != others {
					t.Errorf("%d other lines, want %d", n, others)
				}
			})
		})
	}
}

func TestOtherWarningsOfEtcdAreLoggedAtOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	etcdLogger(zap.New(core)).Warn("found hash mismatch")
	if n := logs.FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
}
