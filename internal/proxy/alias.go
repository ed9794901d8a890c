package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

// Alias serves a group-version from a backend that serves a different version of the group. Objects must have the same
// fields in both versions. The proxy rewrites the version in the request path. In responses it rewrites apiVersion of the
// object, of list items, of the objects in a Table and of watch events.
//
// The group must be the same in both, because authorization checks groups and not versions: a user who may read an object
// in one version may read it in the other.
//
// The zero Alias means that no version is rewritten.
type Alias struct {
	Client, Backend schema.GroupVersion
}

// aliased reports whether the backend serves a different version of the group.
func (x *exchange) aliased() bool { return x.dest.Alias != Alias{} }

// readVerbs are the verbs that are forwarded to a backend with a different version. Requests with other verbs carry objects
// in their bodies.
var readVerbs = map[string]bool{"get": true, "list": true, "watch": true}

// checkAlias refuses requests that a backend with a different version cannot serve.
func (x *exchange) checkAlias(upgrade string) error {
	a := &x.dest.Alias
	switch {
	case !x.info.IsResourceRequest:
		return &badRequestError{"the path is none of a resource"}
	case !readVerbs[x.info.Verb] || x.r.Method != http.MethodGet && x.r.Method != http.MethodHead:
		e := apierrors.NewMethodNotSupported(schema.GroupResource{Group: x.info.APIGroup, Resource: x.info.Resource}, x.info.Verb)
		e.ErrStatus.Message += fmt.Sprintf(": %s is served from %s, for reads only; write to %s", a.Client, a.Backend, a.Backend)
		return e
	case upgrade != "":
		return &badRequestError{fmt.Sprintf("%s is served from %s, and not over an upgraded connection", a.Client, a.Backend)}
	}
	return nil
}

// setAliasPath replaces the version in the path with the backend's. The rest of the path stays byte for byte.
func (x *exchange) setAliasPath() error {
	rest, ok := strings.CutPrefix(x.url.Opaque, "/apis/"+x.dest.Alias.Client.String())
	if !ok || rest != "" && rest[0] != '/' {
		return errAmbiguousPath // spelled with escapes
	}
	x.url.Opaque = "/apis/" + x.dest.Alias.Backend.String() + rest
	return nil
}

// setAliasAccept removes the media types that cannot be rewritten from the Accept header.
func (a *Alias) setAliasAccept(header http.Header) error {
	var kept []string
	if len(header["Accept"]) == 0 {
		kept = append(kept, respond.MediaJSON)
	}
	for _, c := range respond.ParseAccept(header["Accept"]...) {
		switch c.MediaType {
		case respond.MediaJSON, respond.MediaProtobuf:
			params := maps.Clone(c.Params)
			delete(params, "q") // the clauses are in order of preference
			kept = append(kept, mime.FormatMediaType(c.MediaType, params))
		case "*/*", "application/*":
			kept = append(kept, respond.MediaJSON)
		}
	}
	if len(kept) == 0 {
		return respond.NotAcceptable(respond.MediaJSON, respond.MediaProtobuf)
	}
	header["Accept"] = []string{strings.Join(kept, ", ")}
	for _, name := range []string{"Accept-Encoding", "Range", "If-Range"} {
		delete(header, name)
	}
	return nil
}

var errNotRewritable = &responseError{
	reason: "BackendProtocol", code: http.StatusOK,
	text: "answered in a format in which the version cannot be rewritten; JSON and protobuf can be",
}

// rewrite replaces the response body with a reader that rewrites the version to the client's.
func (a *Alias) rewrite(resp *http.Response, watch bool) error {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil // a Status has its own apiVersion
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || resp.Header.Get("Content-Encoding") != "" {
		return errNotRewritable
	}
	from, to := a.Backend.String(), a.Client.String()
	body := resp.Body
	switch {
	case media == respond.MediaJSON:
		resp.Body = prefixed{newJSONRewriter(body, from, to, watch), body}
	case media == respond.MediaProtobuf && watch:
		resp.Body = prefixed{&protobufWatch{source: body, from: from, to: to}, body}
	case media == respond.MediaProtobuf:
		resp.Body = prefixed{&protobufObject{source: body, from: from, to: to}, body}
	default:
		return errNotRewritable
	}
	resp.ContentLength = -1
	for _, name := range []string{"Content-Length", "Accept-Ranges", "Digest", "Content-Digest", "Repr-Digest"} {
		delete(resp.Header, name)
	}
	return nil
}

// Kubernetes protobuf is four magic bytes followed by a runtime.Unknown, which begins with the TypeMeta. List items have
// no TypeMeta.
var protobufMagic = []byte{'k', '8', 's', 0}

const (
	// typeMetaTag is the tag of the first field, which is length-delimited.
	typeMetaTag = 1<<3 | 2
	// maxTypeMeta is the size limit of a TypeMeta, which has a group, a version and a kind.
	maxTypeMeta = 4 << 10
)

var errNotProtobuf = errors.New("the response is not an object in protobuf")

// retype returns the beginning of an object with its apiVersion replaced, and the rest of b. It needs the complete
// TypeMeta; short reports that b does not contain all of it.
func retype(b []byte, from, to string) (head, rest []byte, short bool, err error) {
	const before = 5
	if len(b) < before {
		return nil, nil, true, nil
	}
	if string(b[:4]) != string(protobufMagic) || b[4] != typeMetaTag {
		return nil, nil, false, errNotProtobuf
	}
	size, n := binary.Uvarint(b[before:])
	switch {
	case n == 0:
		return nil, nil, true, nil
	case n < 0 || size > maxTypeMeta:
		return nil, nil, false, errNotProtobuf
	case uint64(len(b)-before-n) < size:
		return nil, nil, true, nil
	}
	end := before + n + int(size)
	var meta runtime.TypeMeta
	if meta.Unmarshal(b[before+n:end]) != nil {
		return nil, nil, false, errNotProtobuf
	}
	if meta.APIVersion != from {
		return b[:end], b[end:], false, nil
	}
	meta.APIVersion = to
	text, err := meta.Marshal()
	if err != nil {
		return nil, nil, false, err
	}
	head = append(append([]byte(nil), protobufMagic...), typeMetaTag)
	head = binary.AppendUvarint(head, uint64(len(text)))
	return append(head, text...), b[end:], false, nil
}

// protobufObject rewrites the beginning of one object and copies the rest unchanged.
type protobufObject struct {
	source   io.Reader
	from, to string
	begun    bool
	pending  []byte
}

func (p *protobufObject) Read(b []byte) (int, error) {
	for !p.begun {
		room := make([]byte, 512)
		n, err := p.source.Read(room)
		p.pending = append(p.pending, room[:n]...)
		head, rest, short, bad := retype(p.pending, p.from, p.to)
		switch {
		case bad != nil:
			return 0, bad
		case !short:
			p.begun, p.pending = true, append(append([]byte(nil), head...), rest...)
		case err == io.EOF && len(p.pending) == 0:
			return 0, io.EOF // response to HEAD
		case err == io.EOF:
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
	}
	if len(p.pending) > 0 {
		n := copy(b, p.pending)
		p.pending = p.pending[n:]
		return n, nil
	}
	return p.source.Read(b)
}

// protobufWatch rewrites the objects of a watch. Each event is a frame: a four-byte length and a metav1.WatchEvent.
type protobufWatch struct {
	source   io.Reader
	from, to string
	pending  []byte
	charge   *listCharge     // of the event being read or pending; nil if events are not charged
	ctx      context.Context // bounds the wait for memory
}

// chargeEvents charges the user for the watch events that are held in memory. JSON is rewritten as it streams and is not
// charged.
func (x *exchange) chargeEvents(resp *http.Response) {
	body, ok := resp.Body.(prefixed)
	if !ok {
		return
	}
	if watch, ok := body.Reader.(*protobufWatch); ok {
		watch.charge, watch.ctx = x.eventCharge(), &x.upstream
		resp.Body = prefixed{watch, releasingCloser{body.Closer, watch.charge}}
	}
}

type releasingCloser struct {
	io.Closer
	charge *listCharge
}

func (c releasingCloser) Close() error {
	c.charge.release()
	return c.Closer.Close()
}

func (p *protobufWatch) Read(b []byte) (int, error) {
	if len(p.pending) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.pending)
	p.pending = p.pending[n:]
	return n, nil
}

func (p *protobufWatch) next() error {
	var size [4]byte
	if _, err := io.ReadFull(p.source, size[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxConverted {
		return errTooLarge
	}
	source := p.source
	if p.charge != nil {
		p.charge.release() // the previous event has been written
		source = p.charge.reader(p.ctx, source)
	}
	frame, err := io.ReadAll(io.LimitReader(source, int64(length)))
	switch {
	case apierrors.IsServiceUnavailable(err):
		return io.EOF // no memory for the event: end the watch between two events
	case err != nil:
		return err
	case len(frame) < int(length):
		return io.ErrUnexpectedEOF
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return errNotProtobuf
	}
	head, rest, short, err := retype(e.Object.Raw, p.from, p.to)
	if err != nil || short {
		return errNotProtobuf
	}
	e.Object.Raw = append(append(make([]byte, 0, len(head)+len(rest)), head...), rest...)
	text, err := e.Marshal()
	if err != nil {
		return err
	}
	p.pending = append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	if p.charge == nil {
		return nil
	}
	if err = p.charge.handOver(p.ctx, len(p.pending)); apierrors.IsServiceUnavailable(err) {
		p.pending, err = nil, io.EOF
	}
	return err
}
