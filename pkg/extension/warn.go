package extension

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Limits for the warnings of a response. Clients print every warning, and intermediate proxies reject large headers.
const (
	maxWarnings    = 32
	maxWarningText = 512

	warningCode = 299 // "miscellaneous persistent warning", the only code that Kubernetes clients display
)

// warnings collects the warnings of a response. They are not written to the header directly, because a provider may warn from
// several goroutines, and http.Header is not safe for concurrent use.
type warnings struct {
	mu    sync.Mutex
	texts []string
	seen  map[string]bool
}

type warningsKey struct{}

// Warn adds a warning (code 299) to the response of the request that ctx belongs to; kubectl prints it. Duplicates are
// dropped. A response has at most 32 warnings, each truncated to 512 bytes. Warn has no effect outside of a request or after
// the response has begun. If several requests share a list, all of them get its warnings. Warn may be called concurrently.
func Warn(ctx context.Context, text string) {
	if ws, ok := ctx.Value(warningsKey{}).(*warnings); ok {
		ws.add(text)
	}
}

func withWarnings(ctx context.Context) (context.Context, *warnings) {
	ws := &warnings{}
	return context.WithValue(ctx, warningsKey{}, ws), ws
}

func (ws *warnings) add(text string) {
	text = headerText(text)
	if text == "" {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.seen[text] || len(ws.texts) >= maxWarnings {
		return
	}
	if ws.seen == nil {
		ws.seen = map[string]bool{}
	}
	ws.seen[text] = true
	ws.texts = append(ws.texts, text)
}

// all returns the warnings so far.
func (ws *warnings) all() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.texts[:len(ws.texts):len(ws.texts)]
}

// writeTo adds the warnings to h.
func (ws *warnings) writeTo(h http.Header) {
	for _, text := range ws.all() {
		if line, err := utilnet.NewWarningHeader(warningCode, "-", text); err == nil {
			h.Add("Warning", line)
		}
	}
}

// writeWarnings adds the warnings of ctx's request to h.
func writeWarnings(ctx context.Context, h http.Header) {
	if ws, ok := ctx.Value(warningsKey{}).(*warnings); ok {
		ws.writeTo(h)
	}
}

// headerText returns text in a form that a header can contain, because the error of a source may contain any characters.
func headerText(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == utf8.RuneError {
			return ' '
		}
		return c
	}, strings.TrimSpace(text))
	if len(text) <= maxWarningText {
		return text
	}
	cut := maxWarningText
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
