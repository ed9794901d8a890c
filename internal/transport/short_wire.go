package transport

import (
	"bufio"
	"net"
	"sync"
)

// wire is what TLS of the short lane reads from. It hands out one record at a time and no byte of the next, so that bytes
// that nobody has asked for stay where they are seen: here, or in the socket. A tls.Conn would take them in, and they
// would pass for the answer of the next request. It also spares the second system call with which a tls.Conn reads most
// records.
type wire struct {
	net.Conn
	buffer [4 << 10]byte
	from   int // of what is in buffer, the part that was not handed out
	to     int
	left   int // of the present record, what was not handed out
}

// recordHeader is a type, a version and a length of two bytes (RFC 8446, 5.1).
const recordHeader = 5

// Read implements io.Reader.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		if err := w.header(); err != nil {
			return 0, err
		}
	}
	p = p[:min(len(p), w.left)]
	if w.from == w.to {
		n, err := w.Conn.Read(p)
		w.left -= n
		return n, err
	}
	n := copy(p, w.buffer[w.from:w.to])
	w.from += n
	w.left -= n
	return n, nil
}

// header reads until the length of the next record is known.
func (w *wire) header() error {
	for w.to-w.from < recordHeader {
		copy(w.buffer[:], w.buffer[w.from:w.to])
		w.from, w.to = 0, w.to-w.from
		n, err := w.Conn.Read(w.buffer[w.to:])
		w.to += n
		if err != nil {
			return err
		}
	}
	h := w.buffer[w.from:w.to]
	w.left = recordHeader + (int(h[3])<<8 | int(h[4]))
	return nil
}

// rest reports whether bytes were read that TLS has not seen.
func (w *wire) rest() bool { return w.from != w.to || w.left != 0 }

// maxRecord is the most that a record holds: a Read of as much leaves nothing of it in the tls.Conn.
const maxRecord = 16 << 10

// readers are buffers for connections that have a request.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxRecord) }}
