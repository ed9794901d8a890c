package server

import (
	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// Headers beyond the limits that hold for every request; see httpmsg.LargeHeaders.

// headerListSlack is room for ten fields as RFC 9113 counts them. net/http has it too.
const headerListSlack = 320

// headerLimits are the limits of a header that has no grant. Pseudo-header fields are not counted as fields.
func (s *Server) headerLimits() frame.BlockLimits {
	return frame.BlockLimits{MaxBytes: s.c.MaxHeaderBytes + headerListSlack, MaxFields: httpmsg.MaxFields + 4}
}

// maxHeaderList is the value of SETTINGS_MAX_HEADER_LIST_SIZE. Go's client sends no larger header.
func (s *Server) maxHeaderList() int {
	if s.c.LargeHeaders != nil {
		return httpmsg.MaxLargeHeader + headerListSlack
	}
	return s.c.MaxHeaderBytes + headerListSlack
}

// growHeader raises the limits of the present header by a step, and reports whether it may be larger.
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

// endBlock forgets the present header block. An idle connection keeps nothing of it.
func (c *conn) endBlock() {
	c.head.reset()
	if c.large.Large() {
		c.detachGrant().Release()
	}
}

// detachGrant is the grant of the present header, or nil. The next header begins with the limits for every request.
func (c *conn) detachGrant() *httpmsg.HeaderGrant {
	g := c.large.Detach()
	c.setHeaderLimits()
	return g
}

// takeLarge counts a large header against a client of which no request was authenticated yet.
func (c *conn) takeLarge() error {
	if c.memory.class.Load() != httpmsg.Unauthenticated || c.large.Trusted() {
		return nil
	}
	return c.rate.takeControl(costOfLarge)
}

// LargeHeader is the grant of the request's header, or nil, and the memory that the header uses.
func (w *response) LargeHeader() (*httpmsg.HeaderGrant, int64) {
	m := &w.stream().memory
	return m.grant, int64(m.header)
}
