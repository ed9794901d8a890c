package declared

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/extension/httpclient"
)

// maxHeaderBytes bounds a header that is read from a file.
const maxHeaderBytes = 16 << 10

// HTTP asks one address and reads JSON or YAML. Redirects are not followed: credentials go to the address that was
// written down and to no other.
type HTTP struct {
	URL    string
	Access httpclient.Config
	// HeaderFiles are headers whose values are read from files for every request.
	HeaderFiles map[string]string
	// Format is json or yaml.
	Format   string
	Timeout  time.Duration
	MaxBytes int64

	client lazy[*httpclient.Client]
}

// Fetch asks once.
func (h *HTTP) Fetch(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	client, err := h.client.get(func() (*httpclient.Client, error) { return httpclient.New(h.Access) })
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/"+h.Format+", */*;q=0.5")
	for name, file := range h.HeaderFiles {
		value, err := readHeader(file)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		r.Header.Set(name, value)
	}
	answer, err := client.Fetch(r, h.MaxBytes)
	if err != nil {
		return nil, err
	}
	switch {
	case answer.Code >= 300 && answer.Code < 400:
		return nil, fmt.Errorf("HTTP %d: it redirects to %q; redirects are not followed, so give that URL", answer.Code, answer.Header.Get("Location"))
	case answer.Code != http.StatusOK:
		return nil, fmt.Errorf("HTTP %d: %q", answer.Code, beginning(answer.Body))
	}
	return decoder(h.Format)(answer.Body)
}

// Close lets go of idle connections.
func (h *HTTP) Close() {
	if client, ok := h.client.made(); ok {
		client.Close()
	}
}

func readHeader(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := readBounded(f, maxHeaderBytes)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" {
		return "", errors.New(file + " is empty")
	}
	return value, nil
}

// lazy is made when it is first needed, and again while making it fails.
type lazy[T any] struct {
	mu   sync.Mutex // makes making one step
	done bool
	it   T
}

func (l *lazy[T]) get(make func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return l.it, nil
	}
	it, err := make()
	if err == nil {
		l.it, l.done = it, true
	}
	return it, err
}

func (l *lazy[T]) made() (T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.it, l.done
}
