package apiservice

import (
	"time"

	"golang.org/x/time/rate"
)

// A front door and the gateways of one cluster read the same APIServices and APIRoutes, and reach different verdicts on
// them. The status of each object has one owner: the program that receives the requests. The replicas of the owner elect
// the one that writes.

// ownerInterval is the time between two checks of whether this program has become the owner of a status.
const ownerInterval = 10 * time.Second

func ownsStatus(owns func(name string) bool, name string) bool { return owns == nil || owns(name) }

// ownsAPIRouteStatus reports whether this program writes the status of an APIRoute. If the APIService of an APIRoute leads
// to a gateway, the gateway writes the status.
func (c *Controller) ownsAPIRouteStatus(name string) bool {
	if o, err := c.lister.Get(name); err == nil && leadsToGateway(o) {
		return false
	}
	return ownsStatus(c.cfg.APIRoutes.OwnsStatus, name)
}

// checkStatusOwner enqueues the status of an APIService and of its APIRoute, which this program may own now.
func (c *Controller) checkStatusOwner(apiService string) {
	if c.cfg.OwnsStatus != nil {
		c.status.queue.AddAfter(apiService, repairDelay)
	}
	if c.cfg.APIRoutes != nil {
		c.routeStatus.queue.AddAfter(apiService, repairDelay)
	}
}

const (
	// statusBurst is the number of writes of the status of an APIRoute without a delay, and statusInterval the time between
	// later ones. They limit the writes of two writers that disagree, for example if one of them runs an older release.
	statusBurst    = 10
	statusInterval = 5 * time.Second
)

// writeLimits limits the writes of the status of each object. The zero value is ready for use. It is used by one goroutine.
type writeLimits struct {
	limits map[string]*rate.Limiter
	warned rate.Sometimes
}

// delay returns how long the next write must wait. If it is 0, the write is counted.
func (w *writeLimits) delay(name string) time.Duration {
	limit := w.limits[name]
	if limit == nil {
		if w.limits == nil {
			w.limits, w.warned.Interval = make(map[string]*rate.Limiter), time.Minute
		}
		limit = rate.NewLimiter(rate.Every(statusInterval), statusBurst)
		w.limits[name] = limit
	}
	r := limit.Reserve()
	delay := r.Delay()
	if delay > 0 {
		r.Cancel()
	}
	return delay
}

func (w *writeLimits) forget(name string) { delete(w.limits, name) }
