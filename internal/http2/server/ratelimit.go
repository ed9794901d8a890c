package server

import (
	"time"

	"portico.dev/internal/http2/frame"
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

	late, breaks int // DATA that may have been on its way to streams that we broke, and how many those were
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
	errTooManyResets = frame.ConnError{Code: frame.EnhanceYourCalm, Why: "too many streams are reset"}
	errTooMuchTalk   = frame.ConnError{Code: frame.EnhanceYourCalm, Why: "too many frames that carry nothing, or headers that are too large"}
)

func (b *bounds) reset() error {
	if b.resets.take(1) {
		return nil
	}
	return errTooManyResets
}

// lateOfBroken is how many frames may come free for each stream that we broke: a window of a MiB in whole frames.
const (
	lateOfBroken = 64
	mostLate     = recently * lateOfBroken
)

// stray counts a frame of DATA that nobody reads. breaks is how many streams we have broken.
func (b *bounds) stray(breaks int) error {
	b.late = min(mostLate, b.late+lateOfBroken*min(breaks-b.breaks, recently))
	b.breaks = breaks
	if b.late > 0 {
		b.late--
		return nil
	}
	return b.said(1)
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
