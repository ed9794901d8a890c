package delegated

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// firstPause is the pause after a watch ended. It doubles with each watch in a row that fails.
	firstPause = 250 * time.Millisecond
	// maxPauseAway bounds the pause while the API server cannot be reached, maxPauseRefused while it refuses the watch. A server
	// without the right to watch reads the ConfigMap that often.
	maxPauseAway    = 2 * time.Second
	maxPauseRefused = 5 * time.Second
	// readGap is the least time between two reads that requests cause. It bounds the load that clients without credentials can put
	// on the API server.
	readGap = time.Second
)

// follow keeps the configuration current until ctx ends: it watches the ConfigMap from version, and reads it after each watch.
func (d *Delegated) follow(ctx context.Context, version string) {
	var retry retryPause
	for {
		waiting, stop := d.untilWanted(ctx)
		began := time.Now()
		if err := d.watch(waiting, version); waiting.Err() == nil {
			if err != nil {
				d.log.Debug("watch of the authentication ConfigMap ended", zap.Error(err))
			}
			_ = pause(waiting, retry.next(time.Since(began), err)) // a wanted read ends the pause
		}
		stop()
		if ctx.Err() != nil {
			return
		}
		select {
		case <-d.wanted: // the read that follows covers it
		default:
		}
		version = d.poll(ctx, version)
	}
}

// untilWanted returns a context that ends when a request needs the ConfigMap to be read, but not within readGap. stop releases it.
func (d *Delegated) untilWanted(ctx context.Context) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if pause(waiting, readGap) != nil {
			return
		}
		select {
		case <-waiting.Done():
		case <-d.wanted:
			cancel()
		}
	}()
	return waiting, func() {
		cancel()
		<-ended
	}
}

// requestRead makes follow read the ConfigMap soon. It never blocks.
func (d *Delegated) requestRead() {
	select {
	case d.wanted <- struct{}{}:
	default: // a read is wanted already
	}
}

func presentsCertificate(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0
}

// retryPause computes the pauses between watches.
type retryPause struct {
	failures int
	answered bool // the last failure was a response of the API server
}

// next returns the pause after a watch that lasted for some time and ended with err. The jitter keeps replicas from returning in step.
func (p *retryPause) next(lasted time.Duration, err error) time.Duration {
	answered := err == nil || isResponse(err)
	if lasted >= maxPauseRefused || answered && !p.answered {
		p.failures = 0
	}
	p.answered = answered
	longest := maxPauseAway
	if answered {
		longest = maxPauseRefused
	}
	d := min(firstPause<<min(p.failures, 10), longest)
	p.failures++
	return d - rand.N(d/2)
}

// isResponse reports whether err is a response of the API server rather than a failure to reach it.
func isResponse(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status)
}
