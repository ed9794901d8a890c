package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

// frontOf accepts or refuses the configuration that was read.
type frontOf struct {
	taken   []aggregator.Config
	refuses error
}

func (f *frontOf) Reload(read func() (aggregator.Config, error)) error {
	config, err := read()
	if err == nil {
		err = errors.Join(config.Validate(), f.refuses)
	}
	if err == nil {
		f.taken = append(f.taken, config)
	}
	return err
}

// reloading is a front door with a configuration file, as serve makes it.
type reloading struct {
	*reloader
	t     *testing.T
	front *frontOf
	log   *zap.Logger
	logs  *observer.ObservedLogs
}

func newReloading(t *testing.T, file string, flags ...string) *reloading {
	t.Helper()
	config, options := aggregator.Default(), logging.Default()
	sets := settings(&config, &options)
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		for _, set := range sets.FlagSets {
			if set.Lookup(name) != nil {
				if err := set.Set(name, value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	r := &reloader{file: filepath.Join(t.TempDir(), "config.yaml"), running: sets, given: changedFlags(sets)}
	l := &reloading{reloader: r, t: t, front: &frontOf{}}
	l.write(file)
	if err := aggregator.ReadConfigFile(r.file, sets); err != nil {
		t.Fatal(err)
	}
	log, level, err := options.NewAdjustable()
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.DebugLevel)
	l.log, l.logs = log, logs
	r.log, r.level, r.front = zap.New(core), level, l.front
	return l
}

func (l *reloading) write(fields string) {
	l.t.Helper()
	text := "apiVersion: config.portico.dev/v1alpha1\nkind: AggregatorConfiguration\n" + fields
	if err := os.WriteFile(l.file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// said returns the last lines of the log as text, and clears them.
func (l *reloading) said() string {
	var b strings.Builder
	for _, e := range l.logs.TakeAll() {
		b.WriteString(e.Level.String() + " " + e.Message)
		for _, f := range e.Context {
			b.WriteString(" " + f.Key + "=" + strings.TrimSpace(strings.ReplaceAll(f.String, "\n", " ")))
			if values, ok := f.Interface.(interface{ Error() string }); ok {
				b.WriteString(values.Error())
			}
		}
		if names := e.ContextMap(); names["changed"] != nil || names["flags"] != nil {
			b.WriteString(" " + strings.Join(append(textsIn(names["changed"]), textsIn(names["flags"])...), ","))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func textsIn(list any) (texts []string) {
	all, _ := list.([]any)
	for _, one := range all {
		texts = append(texts, one.(string))
	}
	return texts
}

func TestReloadAppliesLogLevel(t *testing.T) {
	l := newReloading(t, "logLevel: warn\n")
	if l.log.Core().Enabled(zap.InfoLevel) {
		t.Fatal("level info is enabled at the start, want warn")
	}
	l.write("logLevel: debug\n")
	l.reload()
	if said := l.said(); !l.log.Core().Enabled(zap.DebugLevel) || !strings.Contains(said, "info reloaded the configuration") || !strings.Contains(said, "log-level") {
		t.Errorf("log after a reload = %s, want the level debug and a line about it", said)
	}
	l.reload()
	if said := l.said(); strings.Contains(said, "log-level") {
		t.Errorf("log after a reload without changes = %s, want no log-level", said)
	}
}

func TestReloadWarnsOfFieldsThatNeedRestart(t *testing.T) {
	l := newReloading(t, "etcdPrefix: /one\nauditPolicyFile: before.yaml\nauditLogPath: \"-\"\n")
	l.write("etcdPrefix: /two\nauditPolicyFile: after.yaml\nauditLogPath: \"-\"\ncorsAllowedOrigins: [a, b]\n")
	for range 2 { // each reload logs it
		l.reload()
		said := l.said()
		if !strings.Contains(said, "warn changed settings require a restart") || !strings.Contains(said, "etcd-prefix") || !strings.Contains(said, "cors-allowed-origins") {
			t.Errorf("log after a reload = %s, want a warning with both fields", said)
		}
	}
	if last := l.front.taken[len(l.front.taken)-1]; last.Audit.PolicyFile != "after.yaml" {
		t.Errorf("audit policy after a reload = %q, want after.yaml", last.Audit.PolicyFile)
	}
}

func TestCommandLineFlagsTakePrecedenceOnReload(t *testing.T) {
	l := newReloading(t, "logLevel: warn\n", "log-level=error", "cors-allowed-origins=a.*,b", "runtime-config=batch/v1=false")
	l.write("logLevel: debug\ncorsAllowedOrigins: [c]\n")
	l.reload()
	if said := l.said(); l.log.Core().Enabled(zap.WarnLevel) || !strings.Contains(said, "info reloaded") || strings.Contains(said, "warn ") {
		t.Errorf("log after a reload = %s, want no warning and the level error", said)
	}
	if got := l.front.taken[0]; len(got.CORSAllowedOrigins) == 0 || got.CORSAllowedOrigins[0] != "a.*" && got.CORSAllowedOrigins[0] != "a.*,b" || got.RuntimeConfig["batch/v1"] != "false" {
		t.Errorf("origins %q, runtime configuration %v after a reload; want the flags' values", got.CORSAllowedOrigins, got.RuntimeConfig)
	}
}

func TestInvalidConfigurationChangesNothing(t *testing.T) {
	l := newReloading(t, "logLevel: warn\n")
	for name, fields := range map[string]string{
		"an unknown field": "logLevel: debug\nloglevel: debug\n", "no level": "logLevel: loud\n", "no number": "securePort: many\nlogLevel: debug\n",
		"what serve refuses": "logLevel: debug\nsecurePort: 99999\n",
	} {
		l.write(fields)
		l.reload()
		if said := l.said(); !strings.HasPrefix(said, "error failed to reload the configuration") || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: log = %s, want one error line", name, said)
		}
	}
	l.write("logLevel: debug\n")
	l.front.refuses = errors.New("the policy has no rules")
	l.reload()
	if said := l.said(); !strings.Contains(said, "the policy has no rules") || l.log.Core().Enabled(zap.InfoLevel) || len(l.front.taken) > 0 {
		t.Errorf("log after a refused audit policy = %s, want the reason and no change", said)
	}
	if err := os.Remove(l.file); err != nil {
		t.Fatal(err)
	}
	l.reload()
	if said := l.said(); !strings.Contains(said, "no such file") {
		t.Errorf("log without the file = %s, want \"no such file\"", said)
	}
}
