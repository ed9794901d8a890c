package aggregator

import (
	"runtime"

	"github.com/spf13/pflag"
)

func (c *Config) addProfilingFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof/ to those who may get it")
	fs.BoolVar(&c.ContentionProfiling, "contention-profiling", c.ContentionProfiling, "record where goroutines wait for each other, for /debug/pprof/block; of use only with --profiling, and costs every wait a little")
}

// wireProfiling has the runtime record what it does not record by itself. It records for the whole process.
func (h *parts) wireProfiling() {
	if h.cfg.Profiling && h.cfg.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
}
