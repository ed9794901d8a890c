package openapi

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/logging"
)

func TestMissingDocumentOfNewServerIsWarningAfterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		rec := &record{}
		expect := func(situation string, err error, want ...zapcore.Level) {
			t.Helper()
			rec.setProblem(err, zap.New(core), "missing", "v1.example.com")
			var got []zapcore.Level
			for _, l := range logs.TakeAll() {
				got = append(got, l.Level)
			}
			if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("%s: levels of the lines = %v, want %v", situation, got, want)
			}
		}
		failed := errors.New("connection refused")
		expect("it is starting", failed, zapcore.InfoLevel)
		expect("it is still starting", failed)
		time.Sleep(logging.StartupGrace)
		expect("it does not start", failed, zapcore.WarnLevel)
		expect("it is known not to start", failed)
		expect("it serves", nil)
		expect("it goes away", failed, zapcore.WarnLevel)
	})
}
