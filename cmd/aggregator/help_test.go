package main

import (
	"testing"

	"portico.dev/internal/tools/program/programtest"
)

func TestHelp(t *testing.T) { programtest.CheckHelp(t, root()) }
