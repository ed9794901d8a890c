package overload

import "time"

// Level is how short memory is.
type Level int32

// The levels. Each does what the one before does, and more.
const (
	Normal Level = iota
	Shedding
	Critical
	Exhausted
)

// String names the level, for logs.
func (l Level) String() string { return [...]string{"normal", "shedding", "critical", "exhausted"}[l] }

// thresholds are in percent of the limit. A level begins at from and ends below to, so that it does not come and go.
var thresholds = [...]struct{ from, to, possible uint64 }{
	Shedding:  {75, 65, 105},
	Critical:  {87, 78, 115},
	Exhausted: {98, 90, 130},
}

// calm is for how long memory must be below a level's end before the level does.
const calm = time.Second

// ladder is where the level comes from.
type ladder struct {
	limit uint64
	level Level
	below time.Time // since when memory is below the end of the level; zero: it is not
}

// step says which level follows from a reading. It goes up at once, and down one level after the other.
func (l *ladder) step(r Reading, now time.Time) Level {
	highest := Normal
	for level := Shedding; level <= Exhausted; level++ {
		if t := thresholds[level]; l.beyond(r.Certain, t.from) || l.beyond(r.Possible, t.possible) {
			highest = level
		}
	}
	switch {
	case highest > l.level:
		l.level, l.below = highest, time.Time{}
	case l.level == Normal || l.beyond(r.Certain, thresholds[l.level].to) || highest == l.level:
		l.below = time.Time{}
	case l.below.IsZero():
		l.below = now
	case now.Sub(l.below) >= calm:
		l.level, l.below = l.level-1, time.Time{}
	}
	return l.level
}

func (l *ladder) beyond(used, percent uint64) bool { return used >= l.limit/100*percent }

// excess is how much must be let go so that a level below Critical follows, as far as a reading says.
func (l *ladder) excess(r Reading) int64 {
	used := r.Certain
	if l.beyond(r.Possible, thresholds[Critical].possible) {
		used = max(used, r.Possible)
	}
	return int64(used) - int64(l.limit/100*thresholds[Critical].to)
}
