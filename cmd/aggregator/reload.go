package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	cliflag "k8s.io/component-base/cli/flag"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

// logLevel is the flag that the reloader itself applies.
const logLevel = "log-level"

// reloader rereads the settings of a front door on SIGHUP, and applies the settings that may change at run time. An
// invalid configuration changes nothing.
type reloader struct {
	log   *zap.Logger
	level *logging.Level
	front interface {
		Reload(read func() (aggregator.Config, error)) error
	}
	// file is the configuration file, or empty. given holds the flags of the command line, which take precedence.
	file  string
	given []*pflag.Flag
	// running holds the settings in effect.
	running cliflag.NamedFlagSets
}

// changedFlags returns the flags that were set.
func changedFlags(sets cliflag.NamedFlagSets) (changed []*pflag.Flag) {
	for _, name := range sets.Order {
		sets.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				changed = append(changed, f)
			}
		})
	}
	return changed
}

// serveAndReload runs serve and reloads on each SIGHUP until serve returns.
func (r *reloader) serveAndReload(ctx context.Context, serve func(context.Context) error) error {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	served := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-served:
				return
			case <-hangUps:
				r.reload()
			}
		}
	})
	err := serve(ctx)
	close(served)
	running.Wait()
	return err
}

func (r *reloader) reload() {
	var logs logging.Options
	var changed []*pflag.Flag
	err := r.front.Reload(func() (config aggregator.Config, err error) {
		config, logs = aggregator.Default(), logging.Default()
		sets := settings(&config, &logs)
		if err = aggregator.CopyFlags(sets, r.given); err != nil {
			return config, err
		}
		if r.file != "" {
			if err = aggregator.ReadConfigFile(r.file, sets); err != nil {
				return config, err
			}
		}
		if err = logs.Check(); err != nil {
			return config, err
		}
		changed, err = aggregator.DifferentFlags(sets, r.running)
		return config, err
	})
	if err != nil {
		r.log.Error("failed to reload the configuration; the current settings stay in force", zap.String("config", r.file), zap.Error(err))
		return
	}
	var taken, restart []string
	for _, f := range changed {
		if f.Name != logLevel && !aggregator.IsReloadable(f.Name) {
			restart = append(restart, f.Name)
			continue
		}
		taken = append(taken, f.Name)
		err = errors.Join(err, aggregator.CopyFlags(r.running, []*pflag.Flag{f}))
	}
	if err = errors.Join(err, r.level.Set(logs.Level)); err != nil { // both values were validated
		r.log.Error("configuration partially reloaded", zap.Error(err))
		return
	}
	r.log.Info("reloaded the configuration and all watched files", zap.String("config", r.file), zap.Strings("changed", taken))
	if len(restart) > 0 {
		r.log.Warn("changed settings require a restart to take effect", zap.String("config", r.file), zap.Strings("flags", restart))
	}
}
