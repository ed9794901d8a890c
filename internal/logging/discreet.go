package logging

import (
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// quoting is how k8s.io/apiserver begins what it says of an error of its own that is no Status. Such an error comes of a
// body that cannot be applied, and quotes the value that cannot: of a Secret, the secret. The client is told.
const quoting = "apiserver received an error that is not an metav1.Status"

// mistaken is how the library begins, as an error, what it says of a client's selector that has no meaning. The client is
// told, and nobody else can do anything about it.
const mistaken = "Couldn't parse request"

// discreet passes on what the Kubernetes libraries log, but for the errors that quote what a client sent.
type discreet struct{ zapcore.Core }

func newDiscreet(c zapcore.Core) zapcore.Core { return discreet{c} }

// With implements zapcore.Core.
func (d discreet) With(fields []zapcore.Field) zapcore.Core { return discreet{d.Core.With(fields)} }

// Check implements zapcore.Core.
func (d discreet) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(e.Message, mistaken) {
		e.Level = zapcore.DebugLevel
	}
	if !d.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, d)
}

// Write implements zapcore.Core.
func (d discreet) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message = unquoted(e.Message)
	for i, f := range fields {
		if text, ok := textOf(f); ok && unquoted(text) != text {
			fields = slices.Clone(fields)
			fields[i] = zap.String(f.Key, unquoted(text))
		}
	}
	return d.Core.Write(e, fields)
}

func unquoted(text string) string {
	if before, _, ok := strings.Cut(text, quoting); ok {
		return before + quoting + "; what it was is told to the client alone"
	}
	return text
}
