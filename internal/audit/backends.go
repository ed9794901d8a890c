package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// webhookTimeout bounds one call.
	webhookTimeout = 30 * time.Second
	// A batch is tried for at least as long as kube-apiserver tries it: five times, with pauses that begin with the configured backoff
	// and grow by half. These pauses are webhookPatience times the backoff in all.
	webhookTries    = 5
	webhookPatience = 8.125
	// maxWebhookPause bounds one pause, so that a receiver that returns gets the batches that wait soon.
	maxWebhookPause = 5 * time.Second
)

// webhook posts EventLists to a server.
type webhook struct {
	url     string
	client  *http.Client
	backoff time.Duration
}

// newWebhook reads a kubeconfig whose current cluster is the receiver, as kube-apiserver's.
func newWebhook(file string, backoff time.Duration, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*webhook, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("--audit-webhook-config-file: %w", err)
	}
	config.Timeout, config.Dial = webhookTimeout, dial
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("--audit-webhook-config-file %s: %w", file, err)
	}
	return &webhook{url: config.Host + config.APIPath, client: client, backoff: backoff}, nil
}

func (w *webhook) send(ctx context.Context, b *batch) (written int, err error) {
	body := list(b)
	pause, began := w.backoff, time.Now()
	patience := time.Duration(webhookPatience * float64(w.backoff))
	for try := 1; ; try++ {
		if err = w.post(ctx, body); err == nil {
			return len(b.ends), nil
		}
		if try >= webhookTries && time.Since(began) >= patience {
			return 0, err
		}
		pause = min(pause, maxWebhookPause)
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(pause - rand.N(pause/10+1)):
		}
		pause += pause / 2
	}
}

// list is an EventList of a batch.
func list(b *batch) []byte {
	body := make([]byte, 0, len(b.text)+128)
	body = append(body, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`...)
	for n := range b.ends {
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, b.event(n)...)
	}
	return append(body, "]}"...)
}

func (w *webhook) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing in it is needed
	if _, err := io.CopyN(io.Discard, resp.Body, 64<<10); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", w.url, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", w.url, resp.Status)
	}
	return nil
}

func (w *webhook) close() error {
	w.client.CloseIdleConnections()
	return nil
}

// logSink writes an event a line.
type logSink struct {
	out    io.Writer
	closer io.Closer // nil: out is not ours to close
}

// openLog opens the file, "-" for standard output, before anything is promised: a path that cannot be written is found
// at the start and not with the first request.
func openLog(c Config) (*logSink, error) {
	if c.LogPath == "-" {
		return &logSink{out: os.Stdout}, nil
	}
	f, err := os.OpenFile(c.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return &logSink{out: f, closer: f}, nil // a rotation would rename the device or the pipe
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	rotating := &lumberjack.Logger{
		Filename: c.LogPath, MaxAge: c.LogMaxAge, MaxBackups: c.LogMaxBackups, MaxSize: c.LogMaxSize, Compress: c.LogCompress,
	}
	return &logSink{out: rotating, closer: rotating}, nil
}

// maxWriteBytes bounds one write, unless one event is larger. A larger write could exceed the size of a log file.
const maxWriteBytes = 64 << 10

// logInterval is the time between two batches of events in the log: while requests come one after another, each costs
// its part of a write, and not a write and a wakeup of its own.
const logInterval = 100 * time.Millisecond

// logBatching is when the log is written.
var logBatching = batching{maxBytes: maxWriteBytes, wait: logInterval, eager: true}

func (l *logSink) send(_ context.Context, b *batch) (written int, err error) {
	if _, err := l.out.Write(b.text); err != nil {
		return 0, err
	}
	return len(b.ends), nil
}

func (l *logSink) close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}
