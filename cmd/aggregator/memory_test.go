package main

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestInterruptionIsLogged(t *testing.T) {
	failure := errors.New("failure")
	for _, c := range []struct {
		situation string
		serve     func(ctx context.Context, interrupt func()) error
		want      error
		lines     int
	}{
		{"interrupted", func(ctx context.Context, interrupt func()) error { interrupt(); <-ctx.Done(); return nil }, nil, 1},
		{"ended by a failure", func(context.Context, func()) error { return failure }, failure, 0},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		core, logs := observer.New(zap.InfoLevel)
		err := settling(ctx, zap.New(core), "0", func(ctx context.Context) error { return c.serve(ctx, interrupt) })
		interrupt()
		if got := logs.FilterMessageSnippet("stopping").Len(); !errors.Is(err, c.want) || got != c.lines {
			t.Errorf("%s: error = %v and %d lines with stopping, want %v and %d", c.situation, err, got, c.want, c.lines)
		}
	}
}
