package serve

import (
	"time"

	"portico.dev/internal/http2/wire"
)

// bucket holds what a client may do too often. It asks for the time only when it is empty.
type bucket struct {
	left, most, perSecond int
	filled                time.Time
}

// take reports whether n may be taken.
func (b *bucket) take(n int) bool {
	if b.left >= n {
		b.left -= n
		return true
	}
	now := time.Now()
	b.left = min(b.most, b.left+int(min(now.Sub(b.filled).Seconds(), 3600)*float64(b.perSecond)))
	b.filled = now
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

// bounds belong to the goroutine that reads.
type bounds struct {
	resets bucket // streams that ended before they were answered (CVE-2023-44487, CVE-2025-8671)
	talk   bucket // frames that ask for an answer, or mean nothing
}

func newBounds(streams int) bounds {
	now := time.Now()
	resets, talk := 10*streams, 10_000
	return bounds{
		resets: bucket{left: resets, most: resets, perSecond: streams, filled: now},
		talk:   bucket{left: talk, most: talk, perSecond: 1000, filled: now},
	}
}

var (
	errTooManyResets = wire.ConnError{Code: wire.EnhanceYourCalm, Why: "too many streams are reset"}
	errTooMuchTalk   = wire.ConnError{Code: wire.EnhanceYourCalm, Why: "too many frames that carry nothing, or headers that are too large"}
)

func (b *bounds) reset() error {
	if b.resets.take(1) {
		return nil
	}
	return errTooManyResets
}

// costOfOversized has a connection end after ten header blocks that are too large, or a little more than one a second: each costs
// as much to read as a hundred requests, and no credential.
const costOfOversized = 1000

func (b *bounds) said(cost int) error {
	if b.talk.take(cost) {
		return nil
	}
	return errTooMuchTalk
}
