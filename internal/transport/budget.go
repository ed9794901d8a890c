package transport

import "sync"

// retryRatio is how many repetitions the requests of a backend earn: at most a fifth more load, however bad its day.
const retryRatio = 0.2

// budget bounds repetitions of requests that a backend may already have worked on. Those that were provably never
// looked at cost the backend nothing and are bounded by attempts alone.
type budget struct {
	mu     sync.Mutex
	tokens float64
	burst  float64
}

// newBudget starts full: a burst as large as what may be in flight at once, since one lost connection can take all of
// it down in the same moment.
func newBudget(burst int) *budget {
	return &budget{tokens: float64(burst), burst: float64(burst)}
}

func (b *budget) earn() {
	b.mu.Lock()
	b.tokens = min(b.tokens+retryRatio, b.burst)
	b.mu.Unlock()
}

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
