// Package logging configures zap for all log lines of a program, including the lines of libraries.
package logging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// Options select the level and format of the log. The zero value is not valid. Use Default.
type Options struct {
	// Level is debug, info, warn or error.
	Level string
	// Format is console, for people, or json.
	Format string
}

// Default returns the options for human-readable lines from level info.
func Default() Options { return Options{Level: "info", Format: "console"} }

// AddFlags binds the options to flags, with o's values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", o.Level, "log level: debug, info, warn or error")
	fs.StringVar(&o.Format, "logging-format", o.Format, "log format: console or json")
}

// New returns a logger that writes to standard error, and installs it in klog, which the Kubernetes libraries use. Only main
// should call it, because klog has one logger per process. Before the process ends, Sync must be called to write pending
// [Batched] lines.
func (o Options) New() (*zap.Logger, error) {
	log, _, err := o.NewAdjustable()
	return log, err
}

// Check returns an error if New would reject the options.
func (o Options) Check() error {
	_, _, err := o.to(os.Stderr)
	return err
}

// NewAdjustable is New with an adjustable level.
func (o Options) NewAdjustable() (*zap.Logger, *Level, error) {
	log, level, err := o.to(os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	libraries := log.Named("kubernetes").WithOptions(zap.IncreaseLevel(level.libraries), zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return newRedactingCore(newLimitedCore(c)) // unauthenticated clients cause some of these lines
	}))
	klog.SetLoggerWithOptions(zapr.NewLogger(libraries), klog.ContextualLogger(true))
	return log, level, nil
}

// To returns a logger that writes to out.
func (o Options) To(out zapcore.WriteSyncer) (*zap.Logger, error) {
	log, _, err := o.to(out)
	return log, err
}

func (o Options) to(out zapcore.WriteSyncer) (*zap.Logger, *Level, error) {
	level := &Level{own: zap.NewAtomicLevel(), libraries: zap.NewAtomicLevel()}
	if err := level.Set(o.Level); err != nil {
		return nil, nil, err
	}
	encoder, err := o.encoder()
	if err != nil {
		return nil, nil, err
	}
	return zap.New(newCore(encoder, out, level.own), zap.ErrorOutput(zapcore.Lock(os.Stderr))), level, nil
}

// Level is the adjustable minimum level of a logger.
type Level struct{ own, libraries zap.AtomicLevel }

// Set changes the level to debug, info, warn or error. Other values return an error without a change.
func (l *Level) Set(text string) error {
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		return fmt.Errorf("--log-level: %q is none of debug, info, warn, error", text)
	}
	l.own.SetLevel(level)
	l.libraries.SetLevel(libraryLevel(level))
	return nil
}

// libraryLevel returns the level for libraries. It is one step less verbose, because the information messages of libraries are
// intended for their developers.
func libraryLevel(own zapcore.Level) zapcore.Level {
	if own == zapcore.InfoLevel {
		return zapcore.WarnLevel
	}
	return own
}

// timeLayout is RFC 3339 with milliseconds. The fixed number of digits aligns lines, and keeps them sortable as text.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

func (o Options) encoder() (zapcore.Encoder, error) {
	switch o.Format {
	case "console":
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout(timeLayout)
		return singleLineEncoder{zapcore.NewConsoleEncoder(c)}, nil
	case "json":
		return newJSONEncoder(), nil
	}
	return nil, fmt.Errorf("--logging-format: %q is neither console nor json", o.Format)
}

func newJSONEncoder() zapcore.Encoder {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.TimeEncoderOfLayout(timeLayout)
	return singleLineEncoder{zapcore.NewJSONEncoder(c)}
}

// maxFieldBytes bounds each message and each field, so that text from clients, backends and libraries cannot fill a disk.
const maxFieldBytes = 4 << 10

// singleLineEncoder encodes each entry as a single line, regardless of its content (attack row E3: CVE-2021-25743). Both
// formats escape fields, but the console format writes the message unescaped, and libraries include text from peers in it.
type singleLineEncoder struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (e singleLineEncoder) Clone() zapcore.Encoder { return singleLineEncoder{e.Encoder.Clone()} }

// EncodeEntry implements zapcore.Encoder.
func (e singleLineEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = bounded(escaped(entry.Message))
	kept := fields
	for i, f := range fields {
		text, ok := textOf(f)
		at, isTime := timeOf(f)
		if isTime {
			text = at.Format(time.RFC3339)
		} else if !ok || len(text) <= maxFieldBytes {
			continue
		}
		if &kept[0] == &fields[0] {
			kept = append([]zapcore.Field(nil), fields...) // the caller's slice must not be modified
		}
		kept[i] = zap.String(f.Key, bounded(text))
	}
	return e.Encoder.EncodeEntry(entry, kept)
}

// AddTime implements zapcore.ObjectEncoder, for fields added with With. See timeOf.
func (e singleLineEncoder) AddTime(key string, at time.Time) {
	e.AddString(key, at.Format(time.RFC3339))
}

// timeOf returns the time of a field. Fields are written without fractions of a second, unlike the time of a line.
func timeOf(f zapcore.Field) (at time.Time, ok bool) {
	switch f.Type {
	case zapcore.TimeType:
		at = time.Unix(0, f.Integer)
		if zone, ok := f.Interface.(*time.Location); ok {
			at = at.In(zone)
		}
		return at, true
	case zapcore.TimeFullType:
		at, ok = f.Interface.(time.Time)
		return at, ok
	}
	return at, false
}

// textOf returns the text of a field, for the types without a bounded size.
func textOf(f zapcore.Field) (string, bool) {
	switch f.Type {
	case zapcore.StringType:
		return f.String, true
	case zapcore.ErrorType, zapcore.StringerType, zapcore.ReflectType, zapcore.ArrayMarshalerType:
		return fmt.Sprint(f.Interface), true
	}
	return "", false
}

func bounded(s string) string {
	if len(s) <= maxFieldBytes {
		return s
	}
	cut := maxFieldBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// escaped escapes characters that end a line or control a terminal.
func escaped(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quotingPrefix is the prefix of k8s.io/apiserver's message about an internal error that is not a Status. Such an error results
// from a body that cannot be applied, and quotes the offending value, which for a Secret is confidential. The client receives
// the error.
const quotingPrefix = "apiserver received an error that is not an metav1.Status"

// clientMistakePrefix is the prefix of k8s.io/apiserver's error message about an invalid selector in a request. Only the client
// can correct it, and receives the error.
const clientMistakePrefix = "Couldn't parse request"

// redactingCore writes the log of the Kubernetes libraries. It removes the parts of errors that quote requests, and logs errors
// that are not failures at debug level.
type redactingCore struct{ zapcore.Core }

func newRedactingCore(c zapcore.Core) zapcore.Core { return redactingCore{c} }

// With implements zapcore.Core.
func (d redactingCore) With(fields []zapcore.Field) zapcore.Core {
	return redactingCore{d.Core.With(fields)}
}

// Check implements zapcore.Core.
func (d redactingCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(e.Message, clientMistakePrefix) {
		e.Level = zapcore.DebugLevel
	}
	if !d.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, d)
}

// isCanceled reports whether an entry is about a request that its client canceled, as watches are when a program ends.
func isCanceled(fields []zapcore.Field) bool {
	return slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, ok := f.Interface.(error)
		return ok && f.Type == zapcore.ErrorType && errors.Is(err, context.Canceled)
	})
}

// Write implements zapcore.Core.
func (d redactingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if isCanceled(fields) {
		if !d.Enabled(zapcore.DebugLevel) {
			return nil
		}
		e.Level = zapcore.DebugLevel
	}
	e.Message = redact(e.Message)
	for i, f := range fields {
		if text, ok := textOf(f); ok && redact(text) != text {
			fields = slices.Clone(fields)
			fields[i] = zap.String(f.Key, redact(text))
		}
	}
	return d.Core.Write(e, fields)
}

func redact(text string) string {
	if before, _, ok := strings.Cut(text, quotingPrefix); ok {
		return before + quotingPrefix + "; the error is omitted here and returned to the client"
	}
	return text
}

// PanicFields returns the log fields of a panic: its type and its stack. It omits the value, which may contain data from a
// client (attack row E1), except for runtime errors, which contain only types and numbers.
func PanicFields(p any) []zap.Field {
	kind, stack := fmt.Sprintf("%T", p), debug.Stack()
	switch p := p.(type) {
	case runtime.Error:
		kind = p.Error()
	case string:
		// k8s.io/apiserver passes a panic from one goroutine to another as text with the stack of the first.
		if _, there, ok := strings.Cut(p, "\ngoroutine "); ok {
			stack = append([]byte("goroutine "+there+"\n"), stack...)
		}
	}
	return []zap.Field{zap.String("panic", kind), zap.ByteString("stack", stack)}
}
