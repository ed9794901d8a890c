package fairness

import (
	"sync"
	"sync/atomic"
	"time"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// sight is what the library sees of a level. It integrates the demand for seats, and divides the seats by that; the rest
// are histograms over time.
//
// Each of these gauges takes a lock or two and reckons with floating point, and a request changes them six times: more
// than all the rest of its turn. So changes are counted here, and told at most so often. The greatest demand in between
// is told too, since levels lend by it; what is lost is when, within an interval, a value was another.
type gaugeUpdater struct {
	executing, waiting, seats, demand atomic.Int64
	peakDemand                        atomic.Int64 // demand since it was told

	origin  time.Time
	updated atomic.Int64 // when, since origin
	pending atomic.Bool  // timer will tell

	mu     sync.Mutex // held while it is told
	gauges libraryGauges
	timer  *time.Timer
}

// gauges are the library's.
type libraryGauges struct {
	requests fcmetrics.RatioedGaugePair
	seats    fcmetrics.RatioedGauge
	demand   fcmetrics.Gauge
}

// tellEvery is how often the library is told.
const updateInterval = 5 * time.Millisecond

func newGaugeUpdater(g libraryGauges) *gaugeUpdater {
	return &gaugeUpdater{origin: time.Now(), gauges: g}
}

// want counts seats that a request begins, or by a negative number ceases, to want.
func (u *gaugeUpdater) addDemand(seats int) {
	now := u.demand.Add(int64(seats))
	for most := u.peakDemand.Load(); now > most && !u.peakDemand.CompareAndSwap(most, now); {
		most = u.peakDemand.Load()
	}
}

// changed has the library told, now or soon.
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
			u.pending.Store(false) // first: what changes from here on is told by another
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
