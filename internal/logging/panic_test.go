package logging

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
)

func TestE1PanicIsLoggedWithoutItsValue(t *testing.T) {
	var none map[string]int
	for name, c := range map[string]struct {
		panics     func()
		kind, deep string
	}{
		"a text":                       {func() { panic("canary") }, "string", "TestE1PanicIsLogged"},
		"an error":                     {func() { panic(errors.New("canary")) }, "*errors.errorString", "TestE1PanicIsLogged"},
		"a fault that the runtime met": {func() { none["canary"] = 1 }, "assignment to entry in nil map", "TestE1PanicIsLogged"},
		"one of another goroutine":     {func() { panic("canary\ngoroutine 7 [running]:\nfar.away()") }, "string", "far.away()"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				o := zapcore.NewMapObjectEncoder()
				for _, f := range PanicFields(recover()) {
					f.AddTo(o)
				}
				kind, _ := o.Fields["panic"].(string)
				stack, _ := o.Fields["stack"].(string)
				if kind != c.kind && !strings.HasSuffix(kind, c.kind) || !strings.Contains(stack, c.deep) {
					t.Errorf("panic kind %q at %s, want %q at %s", kind, stack, c.kind, c.deep)
				}
				if strings.Contains(kind+stack, "canary") {
					t.Errorf("the value is told: %q %s", kind, stack)
				}
			}()
			c.panics()
		})
	}
}
