package serve

import (
	"errors"
	"io"
)

// gatherer is what may lie below TLS: it writes the records of a large write together.
type gatherer interface {
	Gather()
	Release() error
}

type gathering struct {
	io.Writer
	below gatherer
}

// maxRecord is what TLS puts into one record.
const maxRecord = 16 << 10

// Write implements io.Writer.
func (g gathering) Write(p []byte) (int, error) {
	if len(p) <= maxRecord {
		return g.Writer.Write(p)
	}
	g.below.Gather()
	n, err := g.Writer.Write(p)
	return n, errors.Join(err, g.below.Release())
}
