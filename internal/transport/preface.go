package transport

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The frame that a server must send first (RFC 9113, 3.4), and the setting in it that bounds concurrent streams.
	frameHeaderLen       = 9
	frameSettings        = 4
	settingLen           = 6
	settingMaxConcurrent = 3
	// maxSettingsLen bounds what is looked at: every setting that exists fits ten times.
	maxSettingsLen = 512
	// defaultStreams is how many streams we put on a connection whose server sets no limit.
	defaultStreams = 1000
	// closeTimeout bounds the polite end of a connection whose other side may be gone.
	closeTimeout = 250 * time.Millisecond
)

// session is a TLS connection that was handed to the HTTP/2 library. It listens to the first frame that the server
// sends, for two reasons. A server that finished TLS but never speaks HTTP/2 is one whose connection was not made. And
// until the library knows how many streams the server allows it assumes 100, and lets the excess wait behind whatever
// is first; with watches that is for ever.
type session struct {
	*tls.Conn
	raw  net.Conn
	once sync.Once
	gone atomic.Bool
	// onEnd, if set, is called when the connection was closed.
	onEnd atomic.Pointer[func()]

	reads  atomic.Uint64 // counts those that brought something
	silent atomic.Bool   // given up by pulse
	pulse  pulse

	seen    []byte        // of the first frame; touched by the reader only
	settled chan struct{} // closed when the first frame was seen, or the connection ended
	settle  sync.Once
	streams int  // valid when settled is closed
	alive   bool // a first frame was seen; valid when settled is closed
}

func newSession(tc *tls.Conn, raw net.Conn) *session {
	return &session{Conn: tc, raw: raw, settled: make(chan struct{}), streams: defaultStreams}
}

func (s *session) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.reads.Add(1)
	}
	if err != nil && s.silent.Load() {
		err = errFellSilent
	}
	select {
	case <-s.settled:
	default:
		s.listen(b[:n])
	}
	return n, err
}

func (s *session) listen(b []byte) {
	s.seen = append(s.seen, b[:min(len(b), frameHeaderLen+maxSettingsLen-len(s.seen))]...)
	if len(s.seen) < frameHeaderLen {
		return
	}
	length := int(s.seen[0])<<16 | int(s.seen[1])<<8 | int(s.seen[2])
	if s.seen[3] != frameSettings || length > maxSettingsLen {
		s.done(true) // the library will have its own opinion
		return
	}
	if len(s.seen) < frameHeaderLen+length {
		return
	}
	for p := s.seen[frameHeaderLen : frameHeaderLen+length]; len(p) >= settingLen; p = p[settingLen:] {
		if binary.BigEndian.Uint16(p) == settingMaxConcurrent {
			s.streams = int(min(binary.BigEndian.Uint32(p[2:]), defaultStreams))
		}
	}
	s.done(true)
}

func (s *session) done(alive bool) {
	s.settle.Do(func() {
		s.alive, s.seen = alive, nil
		close(s.settled)
	})
}

// Close says good-bye if that is quick.
func (s *session) Close() error {
	s.once.Do(func() {
		s.gone.Store(true)
		if t := s.pulse.timer; t != nil {
			t.Stop()
		}
		force := time.AfterFunc(closeTimeout, func() { _ = s.raw.Close() })
		defer force.Stop()
		_ = s.Conn.Close() // it closes raw too
		s.settle.Do(func() { close(s.settled) })
		if told := s.onEnd.Load(); told != nil {
			(*told)()
		}
	})
	return nil
}
