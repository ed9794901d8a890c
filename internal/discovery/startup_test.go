package discovery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/logging"
)

func TestFailedDiscoveryOfNewServerIsWarningAfterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newEnv(t, newMemory())
		core, logs := observer.New(zap.InfoLevel)
		h.log = zap.New(core)
		route := remote.Route{APIService: "v1.example.com", GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, UID: "u", Available: true}
		rec := &record{}
		expect := func(situation string, r result, want ...zapcore.Level) {
			t.Helper()
			h.apply(route, rec, r)
			var got []zapcore.Level
			for _, l := range logs.TakeAll() {
				got = append(got, l.Level)
			}
			if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("%s: levels of the lines = %v, want %v", situation, got, want)
			}
		}
		failed := result{err: errors.New("connection refused")}
		expect("it is starting", failed, zapcore.InfoLevel)
		expect("it is still starting", failed)
		time.Sleep(logging.StartupGrace)
		expect("it does not start", failed, zapcore.WarnLevel)
		expect("it is known not to start", failed)
		expect("it serves", result{}, zapcore.InfoLevel)
		expect("it goes away", failed, zapcore.WarnLevel)
	})
}
