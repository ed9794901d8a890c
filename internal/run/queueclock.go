package run

import (
	"time"

	"k8s.io/utils/clock"
)

// QueueClock is the clock of all work queues (package workqueue of client-go). A queue sets its metrics about work in progress twice a
// second, also without work; with some twenty queues, that was a quarter of the wakeups of an idle server. With this clock, it sets them
// four times a minute, as often as metrics are read. Delays and rate limits are those of the real clock.
var QueueClock clock.WithTicker = queueClock{}

type queueClock struct{ clock.RealClock }

// queueTick is the shortest interval of a ticker. Besides its metrics, a queue uses one only as a safeguard, every ten seconds.
const queueTick = 15 * time.Second

// NewTicker implements clock.WithTicker.
func (c queueClock) NewTicker(d time.Duration) clock.Ticker {
	return c.RealClock.NewTicker(max(d, queueTick))
}
