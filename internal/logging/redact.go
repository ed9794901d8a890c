package logging

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// quotingPrefix is how k8s.io/apiserver begins a message about an error of its own that is no Status. Such an error
// comes of a body that cannot be applied, and quotes the value that cannot: of a Secret, the secret. The client is
// told.
const quotingPrefix = "apiserver received an error that is not an metav1.Status"

// clientMistakePrefix is how the library begins an error message about an invalid selector of a client. The client is
// told, and nobody else can do anything about it.
const clientMistakePrefix = "Couldn't parse request"

// redactingCore writes what the Kubernetes libraries log, without the parts of errors that quote what a client sent.
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

// Write implements zapcore.Core.
func (d redactingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
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
		return before + quotingPrefix + "; what it was is told to the client alone"
	}
	return text
}

// PanicFields are the log fields of a panic: its kind and its stack, and not its value, which may be made of what a
// client sent (attack row E1). Values of the runtime's own errors hold types and numbers only.
func PanicFields(p any) []zap.Field {
	kind, stack := fmt.Sprintf("%T", p), debug.Stack()
	switch p := p.(type) {
	case runtime.Error:
		kind = p.Error()
	case string:
		// k8s.io/apiserver carries a panic from one goroutine to another as text with the stack of the first.
		if _, there, ok := strings.Cut(p, "\ngoroutine "); ok {
			stack = append([]byte("goroutine "+there+"\n"), stack...)
		}
	}
	return []zap.Field{zap.String("panic", kind), zap.ByteString("stack", stack)}
}
