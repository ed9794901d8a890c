package aggregator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestDevSuppressesWarningsWhileItStartsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			level           zapcore.Level
			starting, later []string
		}{
			{zap.WarnLevel, []string{"error"}, []string{"warning", "error"}},
			{zap.InfoLevel, []string{"warning", "error"}, []string{"warning", "error"}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			core, logs := observer.New(c.level)
			d := newDevLog(ctx, zap.New(core))
			expect := func(situation string, want []string) {
				t.Helper()
				d.log.Named("etcd").Warn("warning")
				d.log.Error("error")
				var got []string
				for _, l := range logs.TakeAll() {
					got = append(got, l.Message)
				}
				if !slices.Equal(got, want) {
					t.Errorf("level %s, %s: messages = %v, want %v", c.level, situation, got, want)
				}
			}
			expect("it starts", c.starting)
			d.started()
			expect("it has started", c.later)
			cancel()
			synctest.Wait()
			expect("it stops", c.starting)
		}
	})
}
