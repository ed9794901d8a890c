// Package logging sets up zap for every log line of a program, those of libraries included.
package logging

import (
	"fmt"
	"os"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// Options choose what is logged and how. The zero value is not usable; start from Default.
type Options struct {
	// Level is debug, info, warn or error.
	Level string
	// Format is console, for people, or json.
	Format string
}

// Default logs for people, from level info.
func Default() Options { return Options{Level: "info", Format: "console"} }

// AddFlags binds the options to flags, with o's values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", o.Level, "debug, info, warn or error")
	fs.StringVar(&o.Format, "logging-format", o.Format, "console or json")
}

// New makes the logger, which writes to standard error, and hands it to klog, which the Kubernetes libraries log to.
// It is for main: klog has one logger for the process. Before the process ends, Sync writes what waits of [Batched] lines.
func (o Options) New() (*zap.Logger, error) {
	log, err := o.To(os.Stderr)
	if err != nil {
		return nil, err
	}
	libraries := log.Named("kubernetes").WithOptions(zap.IncreaseLevel(libraryLevel(log.Level())), zap.WrapCore(newRedactingCore))
	klog.SetLoggerWithOptions(zapr.NewLogger(libraries), klog.ContextualLogger(true))
	return log, nil
}

// To makes a logger that writes elsewhere.
func (o Options) To(out zapcore.WriteSyncer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(o.Level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", o.Level)
	}
	encoder, err := o.encoder()
	if err != nil {
		return nil, err
	}
	return zap.New(newCore(encoder, out, level), zap.ErrorOutput(zapcore.Lock(os.Stderr))), nil
}

// libraryLevel is one step quieter than our own: what the libraries call information is for their authors.
func libraryLevel(own zapcore.Level) zapcore.Level {
	if own == zapcore.InfoLevel {
		return zapcore.WarnLevel
	}
	return own
}

func (o Options) encoder() (zapcore.Encoder, error) {
	switch o.Format {
	case "console":
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		return singleLineEncoder{zapcore.NewConsoleEncoder(c)}, nil
	case "json":
		c := zap.NewProductionEncoderConfig()
		c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		return singleLineEncoder{zapcore.NewJSONEncoder(c)}, nil
	}
	return nil, fmt.Errorf("--logging-format: %q is neither console nor json", o.Format)
}
