package server

import (
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// This file handles headers beyond the limits for ordinary requests; see httpmsg.LargeHeaders.

// headerListSlack is the size of ten fields, counted as in RFC 9113. net/http uses the same value.
const headerListSlack = 320

// headerLimits returns the limits of a header without a grant. Pseudo-header fields are not counted as fields.
func (s *Server) headerLimits() frame.BlockLimits {
	return frame.BlockLimits{MaxBytes: s.c.MaxHeaderBytes + headerListSlack, MaxFields: httpmsg.MaxFields + 4}
}

// maxHeaderList returns the value of SETTINGS_MAX_HEADER_LIST_SIZE. Go's client does not send larger headers.
func (s *Server) maxHeaderList() int {
	if s.c.LargeHeaders != nil {
		return httpmsg.MaxLargeHeader + headerListSlack
	}
	return s.c.MaxHeaderBytes + headerListSlack
}

// growHeader raises the limits of the current header by a step, and reports whether it may be larger.
func (c *conn) growHeader() bool {
	if !c.large.Grow() {
		return false
	}
	c.setHeaderLimits()
	return true
}

func (c *conn) setHeaderLimits() {
	l := c.server.headerLimits()
	bytes, fields := c.large.Extra()
	l.MaxBytes, l.MaxFields = l.MaxBytes+bytes, l.MaxFields+fields
	c.decoder.SetLimits(l)
	c.block.SetLimit(frame.CompressedLimit(l.MaxBytes))
}

// endBlock drops the current header block, so that an idle connection does not retain it.
func (c *conn) endBlock() {
	c.head.reset()
	if c.large.Large() {
		c.detachGrant().Release()
	}
}

// detachGrant returns the grant of the current header, or nil. The next header begins with the limits for every request.
func (c *conn) detachGrant() *httpmsg.HeaderGrant {
	g := c.large.Detach()
	c.setHeaderLimits()
	return g
}

// takeLarge charges a client for a large header if none of its requests was authenticated yet.
func (c *conn) takeLarge() error {
	if c.memory.class.Load() != httpmsg.Unauthenticated || c.large.Trusted() {
		return nil
	}
	return c.rate.takeControl(costOfLarge)
}

// LargeHeader returns the grant of the request's header, or nil, and the memory that the header uses.
func (w *response) LargeHeader() (*httpmsg.HeaderGrant, int64) {
	m := &w.stream().memory
	return m.grant, int64(m.header)
}
