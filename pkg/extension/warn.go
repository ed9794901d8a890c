package extension

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// The bounds of what one answer may warn of. Clients print every line, and proxies in between refuse large headers.
const (
	maxWarnings    = 32
	maxWarningText = 512

	warningCode = 299 // "miscellaneous persistent warning", the only one that Kubernetes clients show
)

// warnings are the warnings of a response. They are collected here and not in the header, because a provider
// may warn from several goroutines and a header belongs to one.
type warnings struct {
	mu    sync.Mutex
	texts []string
	seen  map[string]bool
}

type warningsKey struct{}

// Warn adds a warning (code 299) to the response to the request that ctx belongs to; kubectl prints it. Duplicates are
// dropped, and the number of warnings is bounded. Outside of a request, and once the response has begun, it does nothing.
// When several requests share a list, all get its warnings.
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

// all are the warnings so far.
func (ws *warnings) all() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.texts[:len(ws.texts):len(ws.texts)]
}

// writeTo adds the warnings as headers.
func (ws *warnings) writeTo(h http.Header) {
	for _, text := range ws.all() {
		if line, err := utilnet.NewWarningHeader(warningCode, "-", text); err == nil {
			h.Add("Warning", line)
		}
	}
}

// writeWarnings puts what ctx's request warns of into a header that is about to be sent.
func writeWarnings(ctx context.Context, h http.Header) {
	if ws, ok := ctx.Value(warningsKey{}).(*warnings); ok {
		ws.writeTo(h)
	}
}

// headerText is text as a header can carry it: an error of a source may hold anything.
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
