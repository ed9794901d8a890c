package httpmsg

import (
	"errors"
	"io"
	"net"
)

// Gatherer is what may lie below TLS: from Gather to Release, what is written waits to be written together.
type Gatherer interface {
	Gather()
	Release() error
}

// MaxRecord is what TLS puts into one record.
const MaxRecord = 16 << 10

// Gathering is nc as something to write to. The records of a large write are written together, when raw, which lies below,
// is a Gatherer.
func Gathering(nc, raw net.Conn) io.Writer {
	if below, ok := raw.(Gatherer); ok {
		return gathering{nc, below}
	}
	return nc
}

type gathering struct {
	io.Writer
	below Gatherer
}

// Write implements io.Writer.
func (g gathering) Write(p []byte) (int, error) {
	if len(p) <= MaxRecord {
		return g.Writer.Write(p)
	}
	g.below.Gather()
	n, err := g.Writer.Write(p)
	return n, errors.Join(err, g.below.Release())
}
