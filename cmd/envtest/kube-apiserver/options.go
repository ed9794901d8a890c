package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/logging"
)

// options holds the command line.
type options struct {
	config    aggregator.Config
	logs      logging.Options
	certDir   string
	verbosity int
	flags     *pflag.FlagSet
}

// newOptions returns the defaults. They differ from `aggregator serve` where tests need other values.
func newOptions() *options {
	o := &options{config: aggregator.Default(), logs: logging.Default()}
	o.logs.Level = "warn"
	o.config.AccessLog = false
	o.config.Controllers = []string{}
	o.config.MemoryLimit = "0"
	o.config.ShutdownGrace = shutdownGrace
	return o
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.flags = fs
	o.config.AddFlags(fs)
	o.logs.AddFlags(fs)
	hideOwnDirectory(fs)
	fs.StringVar(&o.certDir, "cert-dir", o.certDir, "directory of the serving certificate, apiserver.crt and apiserver.key, which are generated if missing; default a temporary directory")
	fs.IntVarP(&o.verbosity, "v", "v", o.verbosity, "log verbosity: 0 is --log-level=warn, 1 to 3 info, 4 and higher debug")
	addIgnored(fs)
}

// hideOwnDirectory hides the flag for the data directory, which is always temporary.
func hideOwnDirectory(fs *pflag.FlagSet) {
	_ = fs.MarkHidden("data-dir") // AddFlags has just added it
}

// run serves until ctx ends.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	notice := func(format string, args ...any) { fmt.Fprintf(stderr, "kube-apiserver: "+format+"\n", args...) }
	if err := o.adapt(notice); err != nil {
		return err
	}
	if o.certDir != "" {
		if err := os.MkdirAll(o.certDir, 0o755); err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
	}
	log, err := o.logs.New()
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // flush buffered lines
	return serve(ctx, o.config, o.certDir, log)
}

// adapt converts the options of kube-apiserver to options of the front door, and prints a notice for options without
// effect.
func (o *options) adapt(notice func(format string, args ...any)) error {
	if o.flags.Changed("data-dir") {
		return fmt.Errorf("--data-dir: the server's own files are temporary; use --cert-dir, and --etcd-servers for what is stored")
	}
	for _, name := range slices.Concat(ignoredSwitches, ignoredValues) {
		if o.flags.Changed(name) {
			notice("--%s is accepted and has no effect in this server", name)
		}
	}
	o.adaptLogging()
	c := &o.config
	if address, err := netip.ParseAddr(c.Services.AdvertiseAddress); err == nil && (address.IsLoopback() || address.IsUnspecified()) {
		notice("--advertise-address=%s has no effect: it cannot be an endpoint of the Service kubernetes", address)
		c.Services.AdvertiseAddress = ""
	}
	c.Admission.Enable = slices.DeleteFunc(c.Admission.Enable, func(name string) bool {
		lacks := c.Admission.Lacks(name)
		if lacks {
			notice("--enable-admission-plugins: %s has no effect: this server does not have it", name)
		}
		return lacks
	})
	return nil
}

// adaptLogging converts the log format and the verbosity of kube-apiserver.
func (o *options) adaptLogging() {
	if strings.EqualFold(o.logs.Format, "text") {
		o.logs.Format = logging.Default().Format
	}
	switch {
	case o.flags.Changed("log-level"):
	case o.verbosity >= 4:
		o.logs.Level = "debug"
	case o.verbosity >= 1:
		o.logs.Level = "info"
	}
}
