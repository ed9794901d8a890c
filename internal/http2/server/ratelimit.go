package server

import (
	"time"

	"portico.dev/internal/http2/frame"
)

// tokenBucket holds what a client may do too often. It asks for the time only when it is empty.
type tokenBucket struct {
	tokens, burst, perSecond int
	filled                   time.Time
}

// take reports whether n may be taken.
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

// rateLimits belong to the goroutine that reads.
type rateLimits struct {
	resets  tokenBucket // streams that ended before they were answered (CVE-2023-44487, CVE-2025-8671)
	control tokenBucket // frames that ask for an answer, or mean nothing

	allowedStray, seenResets int // DATA that may have been on its way to streams that we broke, and how many those were
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

// strayPerReset is how many frames may come free for each stream that we broke: a window of a MiB in whole frames.
const (
	strayPerReset = 64
	maxStray      = maxResetStreams * strayPerReset
)

// takeStray counts a frame of DATA that nobody reads. breaks is how many streams we have broken.
func (b *rateLimits) takeStray(breaks int) error {
	b.allowedStray = min(maxStray, b.allowedStray+strayPerReset*min(breaks-b.seenResets, maxResetStreams))
	b.seenResets = breaks
	if b.allowedStray > 0 {
		b.allowedStray--
		return nil
	}
	return b.takeControl(1)
}

// costOfOversized has a connection end after ten header blocks that are too large, or a little more than one a second: each costs
// as much to read as a hundred requests, and no credential.
const costOfOversized = 1000

func (b *rateLimits) takeControl(cost int) error {
	if b.control.take(cost) {
		return nil
	}
	return errTooManyControlFrames
}
