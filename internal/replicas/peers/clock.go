package peers

import (
	"net/http"
	"time"

	"go.uber.org/zap"
)

// tellSkew is the minimum difference of clocks that is logged. Tokens and statements between replicas tolerate a
// minute.
const tellSkew = 5 * time.Second

// compareClocks determines from the Date of a response how far the clock of another replica is ahead.
func (p *Peers) compareClocks(name, date string, asked, answered time.Time) {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return
	}
	skew := skewOf(theirs, asked, answered)
	differs := skew.Abs() >= tellSkew
	p.mu.Lock()
	if _, lives := p.replicas[name]; !lives {
		p.mu.Unlock()
		return
	}
	p.config.Metrics.ClockSkew(name, skew)
	before := p.skewed[name]
	if differs {
		p.skewed[name] = true
	} else {
		delete(p.skewed, name)
	}
	p.mu.Unlock()
	switch {
	case differs && !before:
		p.config.Logger.Warn("clock of another replica differs; its tokens may be rejected as expired or not yet valid: synchronize the clocks",
			zap.String("replica", name), zap.Duration("ahead", skew))
	case before && !differs:
		p.config.Logger.Info("clock of another replica agrees again", zap.String("replica", name))
	}
}

// skewOf returns how far a clock is ahead if it read theirs, in whole seconds, at a time between asked and answered.
// It is the smallest skew that explains the reading.
func skewOf(theirs, asked, answered time.Time) time.Duration {
	switch {
	case theirs.After(answered):
		return theirs.Sub(answered)
	case theirs.Add(time.Second).Before(asked):
		return theirs.Add(time.Second).Sub(asked)
	}
	return 0
}
