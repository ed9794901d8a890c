package server

import (
	"time"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// tokenBucket is a rate limiter. It reads the time only when it is empty.
type tokenBucket struct {
	tokens, burst, perSecond int
	filled                   time.Time
}

// take takes n tokens, and reports whether enough were available.
func (b *tokenBucket) take(n int) bool {
	if b.tokens >= n {
		b.tokens -= n
		return true
	}
	now := time.Now()
	b.tokens = min(b.burst, b.tokens+int(min(now.Sub(b.filled).Seconds(), 3600)*float64(b.perSecond)))
	b.filled = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// rateLimits are used by the goroutine that reads.
type rateLimits struct {
	resets  tokenBucket // streams that ended before their response (CVE-2023-44487, CVE-2025-8671)
	control tokenBucket // frames that require a reply, or are empty

	allowedStray, seenResets int // DATA frames that may have been in transit to reset streams, and the number of resets included in it
}

func newRateLimits(streams int) rateLimits {
	now := time.Now()
	resets, talk := 10*streams, 10_000
	return rateLimits{
		resets:  tokenBucket{tokens: resets, burst: resets, perSecond: streams, filled: now},
		control: tokenBucket{tokens: talk, burst: talk, perSecond: 1000, filled: now},
	}
}

var (
	errTooManyResets        = frame.ConnError{Code: frame.EnhanceYourCalm, Reason: "too many streams are reset"}
	errTooManyControlFrames = frame.ConnError{Code: frame.EnhanceYourCalm, Reason: "too many frames that carry nothing, or headers that are too large"}
)

func (b *rateLimits) takeReset() error {
	if b.resets.take(1) {
		return nil
	}
	return errTooManyResets
}

// strayPerReset is the number of DATA frames that are free for each stream reset by the server: a window of 1 MiB in full
// frames.
const (
	strayPerReset = 64
	maxStray      = maxResetStreams * strayPerReset
)

// takeStray counts a DATA frame that is discarded. breaks is the number of streams that the server has reset.
func (b *rateLimits) takeStray(breaks int) error {
	b.allowedStray = min(maxStray, b.allowedStray+strayPerReset*min(breaks-b.seenResets, maxResetStreams))
	b.seenResets = breaks
	if b.allowedStray > 0 {
		b.allowedStray--
		return nil
	}
	return b.takeControl(1)
}

// costOfOversized ends a connection after ten oversized header blocks, or slightly more than one per second. Decoding one
// costs as much as a hundred requests, and requires no credential.
const costOfOversized = 1000

// costOfLarge is the cost of a granted large header until a request of the connection is authenticated. A client may use
// all its streams before the first response.
const costOfLarge = 100

func (b *rateLimits) takeControl(cost int) error {
	if b.control.take(cost) {
		return nil
	}
	return errTooManyControlFrames
}
