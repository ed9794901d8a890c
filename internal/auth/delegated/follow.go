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
	// firstPause is the pause after a watch ends. It doubles with each consecutive failed watch.
	firstPause = 250 * time.Millisecond
	// maxPauseAway limits the pause while the API server is unreachable, and maxPauseRefused while it refuses the
	// watch. A server without permission to watch reads the ConfigMap at the latter interval.
	maxPauseAway    = 2 * time.Second
	maxPauseRefused = 5 * time.Second
	// readGap is the minimum interval between reads triggered by requests. It limits the load that clients without
	// credentials can cause on the API server.
	readGap = time.Second
)

// follow keeps the configuration current until ctx ends. It watches the ConfigMap from version and reads it after
// each watch.
func (d *Delegated) follow(ctx context.Context, version string) {
	var retry retryPause
	for {
		waiting, stop := d.untilWanted(ctx)
		began := time.Now()
		if err := d.watch(waiting, version); waiting.Err() == nil {
			if err != nil {
				d.log.Debug("watch of the authentication ConfigMap ended", zap.Error(err))
			}
			_ = pause(waiting, retry.next(time.Since(began), err)) // a requested read ends the pause
		}
		stop()
		if ctx.Err() != nil {
			return
		}
		select {
		case <-d.wanted: // covered by the poll below
		default:
		}
		version = d.poll(ctx, version)
	}
}

// untilWanted returns a context that ends when a request needs the ConfigMap to be read, but not before readGap has
// passed. stop releases it.
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

// requestRead makes follow read the ConfigMap soon. It does not block.
func (d *Delegated) requestRead() {
	select {
	case d.wanted <- struct{}{}:
	default: // already requested
	}
}

func presentsCertificate(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0
}

// retryPause computes the pauses between watches.
type retryPause struct {
	failures int
	answered bool // the last failure was a response from the API server
}

// next returns the pause after a watch that lasted for the given time and ended with err. Jitter keeps replicas from
// reconnecting in step.
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

// isResponse reports whether err is a response from the API server rather than a failure to reach it.
func isResponse(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status)
}
