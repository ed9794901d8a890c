package apiservice

import (
	"math/rand/v2"
	"time"
)

const (
	// healthyInterval is between the rounds of a backend that has nothing to hide.
	healthyInterval = 30 * time.Second
	// trafficCounts is how long an answer to a request vouches for a backend instead of a round.
	trafficCounts = 10 * time.Second
	// longestTrust is how long traffic alone may vouch.
	longestTrust = 5 * time.Minute

	firstRetry = 500 * time.Millisecond
	// lastRetry is how late the return of a backend may be seen after a long outage. kube-apiserver's is 30 s, and it often
	// does better: a probe of its that hangs is answered as soon as the backend is well.
	lastRetry = 10 * time.Second
	// eagerRetry bounds the backoff for eagerFor after a backend went down or something changed about it, so that its
	// return is seen within a second or so: most outages are restarts.
	eagerRetry = time.Second
	eagerFor   = 30 * time.Second

	// minGap keeps failing requests from turning into as many probes.
	minGap = 250 * time.Millisecond

	// spread is how far intervals are stretched or shrunk, so that backends and replicas do not probe in step.
	spread = 0.15
)

// pace is how long to wait for the next round, before jitter. failures is how many times in a row the
// group-version has failed that fails the shortest; 0 when all is well.
func pace(failures int, eager bool) time.Duration {
	if failures == 0 {
		return healthyInterval
	}
	wait := lastRetry
	if doublings := failures - 1; doublings < 6 { // 0.5 s doubled six times is past the cap
		wait = min(firstRetry<<doublings, lastRetry)
	}
	if eager {
		wait = min(wait, eagerRetry)
	}
	return wait
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}
