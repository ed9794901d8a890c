package fairness

import (
	"sync"
	"sync/atomic"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// gaugeUpdater updates k8s.io/apiserver's gauges of a level. The seats are divided by the integral of the demand. The other
// gauges are histograms over time.
//
// Each of these gauges acquires one or two locks and uses floating point, and a request changes them six times. This exceeds
// the rest of its admission. Therefore changes are counted here, and the gauges are updated at limited intervals. The highest
// demand in between is also set, because lending between levels depends on it. Only the time of a change within an interval is
// lost.
type gaugeUpdater struct {
	executing, waiting, seats, demand atomic.Int64
	peakDemand                        atomic.Int64 // highest demand since the last update

	origin  time.Time
	updated atomic.Int64 // time of the last update, since origin
	pending atomic.Bool  // timer is set

	mu     sync.Mutex // held during an update
	gauges libraryGauges
	timer  *time.Timer
}

// libraryGauges contains k8s.io/apiserver's gauges of a level.
type libraryGauges struct {
	requests fcmetrics.RatioedGaugePair
	seats    fcmetrics.RatioedGauge
	demand   fcmetrics.Gauge
}

// updateInterval is the minimum interval between updates of the gauges.
const updateInterval = 5 * time.Millisecond

func newGaugeUpdater(g libraryGauges) *gaugeUpdater {
	return &gaugeUpdater{origin: time.Now(), gauges: g}
}

// addDemand adds the seats that a request starts to demand. A negative number ends the demand.
func (u *gaugeUpdater) addDemand(seats int) {
	now := u.demand.Add(int64(seats))
	for most := u.peakDemand.Load(); now > most && !u.peakDemand.CompareAndSwap(most, now); {
		most = u.peakDemand.Load()
	}
}

// schedule updates the gauges, now or soon.
func (u *gaugeUpdater) schedule(now time.Time) {
	// Of the requests that find an update due, one makes it. The others need a later one, because this one may have been too early for
	// their changes.
	at, last := int64(now.Sub(u.origin)), u.updated.Load()
	if at-last >= int64(updateInterval) && u.updated.CompareAndSwap(last, at) {
		u.update(now)
		return
	}
	if !u.pending.Load() && u.pending.CompareAndSwap(false, true) {
		u.startTimer()
	}
}

func (u *gaugeUpdater) startTimer() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.timer == nil {
		u.timer = time.AfterFunc(updateInterval, func() {
			u.pending.Store(false) // first, because later changes need another update
			u.update(time.Now())
		})
		return
	}
	u.timer.Reset(updateInterval)
}

func (u *gaugeUpdater) update(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.updated.Store(int64(now.Sub(u.origin)))
	g, demand := &u.gauges, u.demand.Load()
	if most := u.peakDemand.Swap(demand); most > demand {
		g.demand.Set(float64(most))
	}
	g.demand.Set(float64(demand))
	g.seats.Set(float64(u.seats.Load()))
	g.requests.RequestsExecuting.Set(float64(u.executing.Load()))
	g.requests.RequestsWaiting.Set(float64(u.waiting.Load()))
}
