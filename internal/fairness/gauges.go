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
type sight struct {
	executing, waiting, seats, demand atomic.Int64
	most                              atomic.Int64 // demand since it was told

	origin  time.Time
	told    atomic.Int64 // when, since origin
	pending atomic.Bool  // timer will tell

	mu     sync.Mutex // held while it is told
	gauges gauges
	timer  *time.Timer
}

// gauges are the library's.
type gauges struct {
	requests fcmetrics.RatioedGaugePair
	seats    fcmetrics.RatioedGauge
	demand   fcmetrics.Gauge
}

// tellEvery is how often the library is told.
const tellEvery = 5 * time.Millisecond

func newSight(g gauges) *sight {
	return &sight{origin: time.Now(), gauges: g}
}

// want counts seats that a request begins, or by a negative number ceases, to want.
func (s *sight) want(seats int) {
	now := s.demand.Add(int64(seats))
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); {
		most = s.most.Load()
	}
}

// changed has the library told, now or soon.
func (s *sight) changed(now time.Time) {
	if now.Sub(s.origin)-time.Duration(s.told.Load()) >= tellEvery {
		s.tell(now)
		return
	}
	if !s.pending.Load() && s.pending.CompareAndSwap(false, true) {
		s.later()
	}
}

func (s *sight) later() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(tellEvery, func() {
			s.pending.Store(false) // first: what changes from here on is told by another
			s.tell(time.Now())
		})
		return
	}
	s.timer.Reset(tellEvery)
}

func (s *sight) tell(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told.Store(int64(now.Sub(s.origin)))
	g, demand := &s.gauges, s.demand.Load()
	if most := s.most.Swap(demand); most > demand {
		g.demand.Set(float64(most))
	}
	g.demand.Set(float64(demand))
	g.seats.Set(float64(s.seats.Load()))
	g.requests.RequestsExecuting.Set(float64(s.executing.Load()))
	g.requests.RequestsWaiting.Set(float64(s.waiting.Load()))
}
