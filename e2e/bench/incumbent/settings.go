package incumbent

import "time"

// Settings say how much there is, and how long it takes.
type Settings struct {
	// Rounds are of the proxied requests, WatchRounds of the watches, LocalRounds of the local objects.
	Rounds, WatchRounds, LocalRounds int
	// Cell is one turn of requests, Watch one of listening to watches; and so for local objects.
	Warm, Cell, Watch, LocalCell, LocalWatch time.Duration
	// Many is how many objects the long lists have.
	Many int
	// APIServices is how many each pair of sides has; New is how many more are made, one after the other.
	APIServices []int
	New         int
	// Rest is how long all are left alone before the time in which their idle CPU is read, and at the end of that their
	// memory.
	Rest, Idle time.Duration
	// Faults is how many of the faults are made.
	Faults int
	// Dead is how long at least a backend stays away after its namespace was deleted.
	Dead time.Duration
}

// Full is what the record is made with: eight minutes.
func Full() Settings {
	return Settings{
		Rounds: 3, WatchRounds: 2, LocalRounds: 3, Warm: 60 * time.Millisecond, Cell: 300 * time.Millisecond, Watch: 1500 * time.Millisecond,
		LocalCell: 300 * time.Millisecond, LocalWatch: time.Second, Many: 10_000, APIServices: []int{0, 100, 1000}, New: 10,
		Rest: 30 * time.Second, Idle: time.Minute, Faults: len(faults), Dead: 15 * time.Second,
	}
}

// Quick shows that everything works.
func Quick() Settings {
	return Settings{
		Rounds: 1, WatchRounds: 1, LocalRounds: 1, Warm: 20 * time.Millisecond, Cell: 50 * time.Millisecond, Watch: time.Second,
		LocalCell: 30 * time.Millisecond, LocalWatch: time.Second, Many: 200, APIServices: []int{0, 10}, New: 2,
		Rest: time.Second, Idle: 2 * time.Second, Faults: 1, Dead: time.Second,
	}
}
