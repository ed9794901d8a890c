package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/logging"
)

const (
	// webhookTimeout limits one request.
	webhookTimeout = 30 * time.Second
	// A batch is retried at least as long as by kube-apiserver: five attempts, with pauses that begin with the
	// configured backoff and grow by half. The sum of these pauses is webhookPatience times the backoff.
	webhookTries    = 5
	webhookPatience = 8.125
	// maxWebhookPause limits a pause, so that a recovered receiver soon gets the waiting batches.
	maxWebhookPause = 5 * time.Second
)

// webhook posts EventLists to a server.
type webhook struct {
	url     string
	client  *http.Client
	backoff time.Duration
}

// newWebhook reads a kubeconfig with the receiver as its current cluster, as in kube-apiserver.
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

// list returns a batch as an EventList.
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
	defer func() { _ = resp.Body.Close() }() // the body is not needed
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

// logSink writes events, one per line.
type logSink struct{ out io.WriteCloser }

// openLog opens the log file, or standard output for "-".
func openLog(c Config) (*logSink, error) {
	out, err := logging.File{
		Path: c.LogPath, MaxAge: c.LogMaxAge, MaxBackups: c.LogMaxBackups, MaxSize: c.LogMaxSize, Compress: c.LogCompress,
	}.Open()
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return &logSink{out}, nil
}

// maxWriteBytes limits one write, unless a single event is larger. Larger writes could exceed the size of a log file.
const maxWriteBytes = 64 << 10

// logInterval is the interval between batches of log events. Under load, several requests share a write and a wakeup.
const logInterval = 100 * time.Millisecond

// logBatching configures batches of the log.
var logBatching = batching{maxBytes: maxWriteBytes, wait: logInterval, eager: true}

func (l *logSink) send(_ context.Context, b *batch) (written int, err error) {
	if _, err := l.out.Write(b.text); err != nil {
		return 0, err
	}
	return len(b.ends), nil
}

func (l *logSink) close() error { return l.out.Close() }
