package logging

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestE1ErrorsQuotingBodiesAreRedacted(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	log := zap.New(newRedactingCore(core))
	log.Error("Unhandled Error", zap.Error(errors.New(quotingPrefix+": .immutable: expected boolean, got &{canary}")), zap.Int("n", 1))
	log.Error(quotingPrefix + ": canary")
	log.Error("another", zap.Error(errors.New("kept")))
	log.Debug("too quiet")
	var got []any
	for _, e := range seen.All() {
		got = append(got, e.Message, e.ContextMap()["error"])
	}
	told := quotingPrefix + "; the error is omitted here and returned to the client"
	want := []any{"Unhandled Error", told, told, nil, "another", "kept"}
	if len(got) != len(want) {
		t.Fatalf("messages and errors = %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("message or error = %q, want %q", got[i], want[i])
		}
	}
	if seen.All()[0].ContextMap()["n"] != int64(1) {
		t.Errorf("the field n = %v, want 1", seen.All()[0].ContextMap()["n"])
	}
}

func TestClientMistakesAreLoggedAtDebugLevel(t *testing.T) {
	for level, want := range map[zapcore.Level]int{zap.InfoLevel: 0, zap.DebugLevel: 1} {
		core, seen := observer.New(level)
		zap.New(newRedactingCore(core)).Error(clientMistakePrefix, zap.Error(errors.New("unable to parse requirement")))
		if seen.Len() != want || want > 0 && seen.All()[0].Level != zap.DebugLevel {
			t.Errorf("entries at the level %s = %v, want %d at debug", level, seen.All(), want)
		}
	}
}

func TestCanceledRequestIsLoggedAtDebugLevel(t *testing.T) {
	for level, want := range map[zapcore.Level]int{zap.InfoLevel: 1, zap.DebugLevel: 2} {
		core, seen := observer.New(level)
		log := zap.New(newRedactingCore(core))
		log.Error("Failed to watch", zap.Error(&url.Error{Op: "Get", URL: "http://in-process.invalid", Err: context.Canceled}))
		log.Error("Failed to watch", zap.Error(context.DeadlineExceeded))
		if seen.Len() != want || seen.All()[want-1].Level != zap.ErrorLevel || want > 1 && seen.All()[0].Level != zap.DebugLevel {
			t.Errorf("entries at the level %s = %v, want %d", level, seen.All(), want)
		}
	}
}
