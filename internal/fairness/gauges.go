package fairness

import (
	"sync"
	"sync/atomic"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// gaugeUpdater updates the library's gauges of a level. It integrates the demand for seats, and divides the seats by
// that; the rest are histograms over time.
//
// Each of these gauges takes a lock or two and calculates with floating point, and a request changes them six times:
// more than all the rest of its admission. So changes are counted here, and the gauges are updated at most so often.
// The greatest demand in between is set too, since levels lend by it; what is lost is when, within an interval, a value
// was another.
type gaugeUpdater struct {
	executing, waiting, seats, demand atomic.Int64
	peakDemand                        atomic.Int64 // demand since the last update

	origin  time.Time
	updated atomic.Int64 // the last update, since origin
	pending atomic.Bool  // timer is set

	mu     sync.Mutex // held during an update
	gauges libraryGauges
	timer  *time.Timer
}

// libraryGauges are the library's.
type libraryGauges struct {
	requests fcmetrics.RatioedGaugePair
	seats    fcmetrics.RatioedGauge
	demand   fcmetrics.Gauge
}

// updateInterval is how often the gauges are updated.
const updateInterval = 5 * time.Millisecond

func newGaugeUpdater(g libraryGauges) *gaugeUpdater {
	return &gaugeUpdater{origin: time.Now(), gauges: g}
}

// addDemand counts seats that a request begins, or by a negative number ceases, to want.
func (u *gaugeUpdater) addDemand(seats int) {
	now := u.demand.Add(int64(seats))
	for most := u.peakDemand.Load(); now > most && !u.peakDemand.CompareAndSwap(most, now); {
		most = u.peakDemand.Load()
	}
}

// schedule updates the gauges, now or soon.
func (u *gaugeUpdater) schedule(now time.Time) {
	if now.Sub(u.origin)-time.Duration(u.updated.Load()) >= updateInterval {
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
			u.pending.Store(false) // first: what changes from here on needs another
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
