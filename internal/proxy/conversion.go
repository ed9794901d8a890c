package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/respond"
)

// conversion is a conversion that the client requests and the backend does not support.
type conversion struct {
	table   bool   // Table if set, PartialObjectMetadata otherwise
	version string // of meta.k8s.io
	include string // content of the rows of a Table: None, Metadata or Object
}

const (
	includeNone   = "None"
	includeObject = "Object"
)

// conversionFor returns the conversion that the proxy must apply to the response, or nil. If there is one, it changes
// header to request complete plain JSON without conditions, because a converted response differs from any response that a
// cache holds.
func (x *exchange) conversionFor(header http.Header) *conversion {
	t := &x.dest
	if !t.ConvertTable && !t.ConvertMetadata || x.r.Method != http.MethodGet || !x.info.IsResourceRequest {
		return nil
	}
	s := x.negotiate(x.r.Header.Values("Accept"))
	if s == nil {
		return nil
	}
	if s.table {
		s.include = x.r.URL.Query().Get("includeObject")
	}
	header["Accept"] = []string{"application/json"}
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
		delete(header, name)
	}
	return s
}

// negotiate evaluates the clauses of Accept in order of preference. The first clause that can be served decides: either the
// backend serves it in its own format, or the proxy converts.
func (x *exchange) negotiate(accept []string) *conversion {
	for _, c := range respond.ParseAccept(accept...) {
		as := c.Params["as"]
		switch {
		case as == "":
			return nil
		case c.Params["g"] != "meta.k8s.io" || c.Params["v"] != "v1" && c.Params["v"] != "v1beta1":
			continue
		}
		convert := x.dest.ConvertMetadata
		if as == "Table" {
			convert = x.dest.ConvertTable
		}
		switch {
		case !convert:
			return nil // the backend supports this one
		case c.MediaType != "application/json":
			continue // the proxy only produces JSON
		case as == "Table", as == "PartialObjectMetadata", as == "PartialObjectMetadataList":
			return &conversion{table: as == "Table", version: c.Params["v"]}
		}
	}
	return nil
}

// convertible reports whether a response can be converted. Errors stay a Status, and logs stay text.
func convertible(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/json" && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}

// maxConverted is the size limit of a converted list or watch event, which must be held in memory as a whole. A small
// memory limit reduces it further (ListMemory).
const maxConverted = 16 << 20

var (
	errTooLarge = &responseError{
		reason: "TooLargeToConvert", code: http.StatusOK,
		text: "answered with more than 16 MiB, which is not converted; ask for it in parts (limit), or as plain JSON",
	}
	errNotAnObject = &responseError{
		reason: "BackendProtocol", code: http.StatusOK,
		text: "answered with JSON that is neither an object of the API nor a list of them",
	}
)

// relayConverted writes the converted response. It writes nothing before the conversion succeeds, so that a response which
// cannot be converted becomes an error.
func (x *exchange) relayConverted(resp *http.Response, conv *conversion, up *upstreamContext) error {
	if x.info.Verb == "watch" {
		x.relayEvents(resp, conv, up)
		return nil
	}
	charge := x.listCharge()
	defer charge.release()
	body, err := charge.convertList(up, resp.Body, conv)
	if err != nil {
		return up.wrap(err)
	}
	x.writeConvertedHeader(resp)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	up.headersWritten(x.proxy.config.BodyIdle)
	x.w.WriteHeader(http.StatusOK)
	if _, err := x.w.Write(body); err != nil {
		x.abort(errors.Join(errWrite, err), up)
	}
	return nil
}

// writeConvertedHeader writes the header of a converted response, without the fields that describe the backend's bytes.
func (x *exchange) writeConvertedHeader(resp *http.Response) {
	h := x.w.Header()
	x.copyHeaderTo(h, resp.Header)
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified", "Accept-Ranges", "Digest"} {
		delete(h, name)
	}
	h.Set("Content-Type", "application/json")
	h.Add("Vary", "Accept")
}

// convertList reads a list and converts it. The response is charged to the user.
func (c *listCharge) convertList(ctx context.Context, from io.Reader, conv *conversion) ([]byte, error) {
	body, err := io.ReadAll(c.reader(ctx, from))
	if err != nil {
		return nil, err
	}
	if body, err = conv.convert(body); err != nil {
		return nil, err
	}
	return body, c.handOver(ctx, len(body))
}

// relayEvents converts a watch event by event and flushes each one. If there is no memory for the next event, it ends the
// watch between two events.
func (x *exchange) relayEvents(resp *http.Response, conv *conversion, up *upstreamContext) {
	x.writeConvertedHeader(resp)
	up.headersWritten(0)
	x.w.WriteHeader(http.StatusOK)
	flush := flusher(x.w)
	flush()
	charge := x.eventCharge()
	defer charge.release()
	in := eventReader{charge: charge, from: charge.reader(up, resp.Body)}
	out := json.NewEncoder(x.w)
	for first := true; ; first = false {
		e, err := in.next(up, conv, first)
		if err == io.EOF || apierrors.IsServiceUnavailable(err) {
			return
		}
		if err == nil {
			err = out.Encode(e) // Encode appends a newline
		}
		if err != nil {
			x.abort(err, up)
			return
		}
		flush()
	}
}

// eventReader reads the events of a watch.
type eventReader struct {
	charge  *listCharge
	from    io.Reader
	decoder *json.Decoder // nil until it is needed
}

// next returns the next event, converted and charged to the user. It returns io.EOF at the end of the watch.
func (r *eventReader) next(ctx context.Context, conv *conversion, first bool) (e event, err error) {
	r.charge.release() // the previous event has been written
	if r.decoder == nil {
		r.decoder = json.NewDecoder(r.from)
	}
	if err := r.decoder.Decode(&e); err != nil {
		return e, err
	}
	if e.Object, err = conv.event(e, first); err != nil {
		return e, err
	}
	if r.charge.charged == 0 {
		return e, nil
	}
	// A decoder keeps a buffer of the size of its largest event.
	rest, err := io.ReadAll(r.decoder.Buffered())
	if err != nil {
		return e, err
	}
	r.decoder = json.NewDecoder(io.MultiReader(bytes.NewReader(rest), r.from))
	return e, r.charge.handOver(ctx, len(e.Object))
}

// event is a watch event.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}
