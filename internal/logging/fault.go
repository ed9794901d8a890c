package logging

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"go.uber.org/zap"
)

// Fault is what the log is told of a panic: its kind and where it was, and not its value, which may be made of what a
// client sent (attack row E1). What the runtime itself says holds types and numbers only.
func Fault(p any) []zap.Field {
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
