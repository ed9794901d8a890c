// Package frame contains the common parts of both ends of an HTTP/2 connection: reading frames (Reader), writing them
// (Writer), header blocks (Decoder, Encoder, BlockAssembler), flow control (RecvWindow, SendStream) and received message
// bodies (Body).
//
// A Reader, a Decoder and a BlockAssembler belong to the goroutine that reads the connection. A Writer is used by all
// goroutines.
package frame

import (
	"fmt"
)

// Preface is the first data that a client sends (RFC 9113, section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Sizes of RFC 9113.
const (
	HeaderLen     = 9
	MaxFrame      = 16 << 10 // accepted size, and the size that is sent unless the peer allows less
	InitialWindow = 64<<10 - 1
	MaxWindow     = 1<<31 - 1
	MaxStreamID   = 1<<31 - 1
)

// Type is a frame's type.
type Type uint8

// Frame types of RFC 9113, section 6.
const (
	Data         Type = 0
	Headers      Type = 1
	Priority     Type = 2
	RSTStream    Type = 3
	Settings     Type = 4
	PushPromise  Type = 5
	Ping         Type = 6
	GoAway       Type = 7
	WindowUpdate Type = 8
	Continuation Type = 9
)

// Flags of frames.
const (
	FlagEndStream  = 0x1
	FlagAck        = 0x1
	FlagEndHeaders = 0x4
	FlagPadded     = 0x8
	FlagPriority   = 0x20
)

// SettingID identifies a setting.
type SettingID uint16

// Settings of RFC 9113, section 6.5.2, RFC 8441 and RFC 9218.
const (
	HeaderTableSize      SettingID = 1
	EnablePush           SettingID = 2
	MaxConcurrentStreams SettingID = 3
	InitialWindowSize    SettingID = 4
	MaxFrameSize         SettingID = 5
	MaxHeaderListSize    SettingID = 6
	EnableConnect        SettingID = 8
	NoPriorities         SettingID = 9
)

// Setting is a setting in a SETTINGS frame.
type Setting struct {
	ID    SettingID
	Value uint32
}

// Code is an error code of RFC 9113, section 7.
type Code uint32

// Error codes.
const (
	NoError            Code = 0
	ProtocolError      Code = 1
	InternalError      Code = 2
	FlowControlError   Code = 3
	SettingsTimeout    Code = 4
	StreamClosed       Code = 5
	FrameSizeError     Code = 6
	RefusedStream      Code = 7
	Cancel             Code = 8
	CompressionError   Code = 9
	ConnectError       Code = 10
	EnhanceYourCalm    Code = 11
	InadequateSecurity Code = 12
	HTTP11Required     Code = 13
)

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("unknown error code %d", uint32(c))
}

// ConnError is an error that ends the connection.
type ConnError struct {
	Code   Code
	Reason string
}

func (e ConnError) Error() string { return "connection error " + e.Code.String() + ": " + e.Reason }

// StreamError is an error that ends one stream.
type StreamError struct {
	Stream uint32
	Code   Code
	Reason string
	// Received is set if the peer reset the stream.
	Received bool
}

func (e StreamError) Error() string {
	return fmt.Sprintf("stream error %s on stream %d: %s", e.Code, e.Stream, e.Reason)
}

// Frame is a received frame. Payload is valid until the Reader's next frame.
type Frame struct {
	Type    Type
	Flags   uint8
	Stream  uint32
	Payload []byte
}

// Has reports whether a flag is set.
func (f *Frame) Has(flag uint8) bool { return f.Flags&flag != 0 }

// Unpad returns the payload of a DATA or HEADERS frame without its padding.
func (f *Frame) Unpad() ([]byte, error) {
	p := f.Payload
	if !f.Has(FlagPadded) {
		return p, nil
	}
	if len(p) == 0 {
		return nil, ConnError{FrameSizeError, "a padded frame without a pad length"}
	}
	pad := int(p[0])
	if pad >= len(p) {
		return nil, ConnError{ProtocolError, "more padding than payload"}
	}
	return p[1 : len(p)-pad], nil
}

// Uint31 reads a stream id or a window increment.
func Uint31(p []byte) uint32 { return Uint32(p) & MaxWindow }

// Uint32 reads a big-endian integer of four bytes.
func Uint32(p []byte) uint32 {
	return uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3])
}

// ParseSettings calls each for every setting of a SETTINGS frame without ACK.
func ParseSettings(f *Frame, each func(Setting) error) error {
	if len(f.Payload)%6 != 0 {
		return ConnError{FrameSizeError, "a SETTINGS frame whose length is no multiple of 6"}
	}
	for p := f.Payload; len(p) > 0; p = p[6:] {
		s := Setting{SettingID(uint16(p[0])<<8 | uint16(p[1])), Uint32(p[2:])}
		if err := s.valid(); err != nil {
			return err
		}
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}

func (s Setting) valid() error {
	switch {
	case s.ID == EnablePush && s.Value > 1:
		return ConnError{ProtocolError, "ENABLE_PUSH is neither 0 nor 1"}
	case (s.ID == EnableConnect || s.ID == NoPriorities) && s.Value > 1: // RFC 8441, section 3; RFC 9218, section 2.1
		return ConnError{ProtocolError, "a setting that is on or off is neither 0 nor 1"}
	case s.ID == InitialWindowSize && s.Value > MaxWindow:
		return ConnError{FlowControlError, "INITIAL_WINDOW_SIZE is too large"}
	case s.ID == MaxFrameSize && (s.Value < MaxFrame || s.Value > 1<<24-1):
		return ConnError{ProtocolError, "MAX_FRAME_SIZE is out of bounds"}
	}
	return nil
}
