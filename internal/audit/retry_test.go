package audit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// receiver is an audit webhook that is unreachable for some time.
type receiver struct {
	began  time.Time
	outage time.Duration
}

// RoundTrip implements http.RoundTripper.
func (r *receiver) RoundTrip(*http.Request) (*http.Response, error) {
	if time.Since(r.began) < r.outage {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func TestRecoveredReceiverGetsBatchSoon(t *testing.T) {
	for _, test := range []struct {
		outage  time.Duration
		wantErr bool
	}{{outage: 60 * time.Second}, {outage: 75 * time.Second}, {outage: time.Hour, wantErr: true}} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{began: time.Now(), outage: test.outage}
			w := &webhook{url: "http://receiver.invalid", client: &http.Client{Transport: r}, backoff: 10 * time.Second}
			_, err := w.send(context.Background(), &batch{})
			took := time.Since(r.began)
			switch {
			case (err != nil) != test.wantErr:
				t.Errorf("outage of %s: send() = %v after %s, want an error: %t", test.outage, err, took, test.wantErr)
			case err == nil && took > test.outage+maxWebhookPause:
				t.Errorf("outage of %s: sent after %s, want at most %s later", test.outage, took, maxWebhookPause)
			case err != nil && took < 81*time.Second:
				t.Errorf("outage of %s: given up after %s, want at least the 81 s of kube-apiserver", test.outage, took)
			}
		})
	}
}
