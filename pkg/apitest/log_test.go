package apitest

import (
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestLibraryLogsGoToTestLogOrStandardError(t *testing.T) {
	before, stderr := observer.New(zap.InfoLevel)
	core, ofTest := observer.New(zap.DebugLevel)
	l := &libraryLogger{before: before}
	log := zap.New(l)
	logged := func(from *observer.ObservedLogs) (lines []string) {
		for _, e := range from.TakeAll() {
			lines = append(lines, e.Level.String()+" "+e.LoggerName+" "+e.Message)
		}
		return lines
	}
	say := func() {
		for _, level := range []zapcore.Level{zap.DebugLevel, zap.InfoLevel, zap.WarnLevel} {
			log.Log(level, "text")
		}
	}
	check := func(when string, wantStderr, wantTest []string) {
		t.Helper()
		say()
		if got := logged(stderr); !slices.Equal(got, wantStderr) {
			t.Errorf("%s: standard error got %q, want %q", when, got, wantStderr)
		}
		if got := logged(ofTest); !slices.Equal(got, wantTest) {
			t.Errorf("%s: the test's log got %q, want %q", when, got, wantTest)
		}
	}
	quiet, heard := &Environment{}, &Environment{Logger: zap.New(core)}
	check("before a start", []string{"info  text", "warn  text"}, nil)
	l.follow(quiet)
	check("without a logger", nil, nil)
	l.follow(heard)
	check("with one", nil, []string{"warn kubernetes text"})
	l.unfollow(heard)
	check("when it has ended", nil, nil)
}
