package fairness

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/util/flowcontrol/debug"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// BeginConstruction implements fq.QueueSetFactory: it is how the library's controller makes a level.
func (r *ranks) BeginConstruction(c fq.QueuingConfig, requests fcmetrics.RatioedGaugePair, seats fcmetrics.RatioedGauge, demand fcmetrics.Gauge) (fq.QueueSetCompleter, error) {
	form, err := formOf(c)
	if err != nil {
		return nil, fmt.Errorf("queues of level %s: %w", c.Name, err)
	}
	return &completer{ranks: r, config: c, form: form, sight: newSight(gauges{requests: requests, seats: seats, demand: demand})}, nil
}

// completer is what becomes of a level when its limit is known.
type completer struct {
	ranks  *ranks
	level  *level // nil: it is to be made
	config fq.QueuingConfig
	form   *form
	sight  *sight // nil: as it is
}

// Complete implements fq.QueueSetCompleter.
func (c *completer) Complete(d fq.DispatchingConfig) fq.QueueSet {
	l := c.ranks.level(c.config.Name, c.level)
	if c.sight != nil {
		l.sight.Store(c.sight)
	}
	limit := int64(d.ConcurrencyLimit)
	if c.config.DesiredNumQueues < 0 {
		limit = exempt
	}
	l.change(c.form, limit)
	seen := &l.sight.Load().gauges
	seen.requests.RequestsWaiting.SetDenominator(float64(max(1, c.form.queues) * max(1, c.form.length)))
	seen.requests.RequestsExecuting.SetDenominator(float64(d.ConcurrencyDenominator))
	seen.seats.SetDenominator(float64(d.ConcurrencyDenominator))
	c.ranks.put(l)
	return &queueSet{ranks: c.ranks, level: l}
}

// queueSet is a level as the library's controller sees it.
type queueSet struct {
	ranks *ranks
	level *level
}

// BeginConfigChange implements fq.QueueSet.
func (q *queueSet) BeginConfigChange(c fq.QueuingConfig) (fq.QueueSetCompleter, error) {
	form, err := formOf(c)
	if err != nil {
		return nil, fmt.Errorf("queues of level %s: %w", c.Name, err)
	}
	return &completer{ranks: q.ranks, level: q.level, config: c, form: form}, nil
}

// IsIdle implements fq.QueueSet: the library asks whether a level whose object has gone may be forgotten. It may at once.
// Those who are in it keep their seats, and wait for the ones that there were; a level of the same name takes it up again.
func (q *queueSet) IsIdle() bool { return true }

// StartRequest implements fq.QueueSet. Requests come by [Fairness.Enter]; the library is not asked about any.
func (q *queueSet) StartRequest(context.Context, *fcrequest.WorkEstimate, uint64, string, string, any, any, fq.QueueNoteFn) (fq.Request, bool) {
	return nil, true
}

// Dump implements fq.QueueSet.
func (q *queueSet) Dump(bool) debug.QueueSetDump {
	l := q.level
	l.mu.Lock()
	defer l.mu.Unlock()
	return debug.QueueSetDump{Waiting: l.waiting, SeatsInUse: int(l.taken())}
}
