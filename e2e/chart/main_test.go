package chart

import (
	"log/slog"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm says of every symbolic link that it follows it
	os.Exit(m.Run())
}
