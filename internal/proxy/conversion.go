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

// conversion is what a client wants the backend's objects to be converted to, which the backend cannot do.
type conversion struct {
	table   bool   // a Table, or else PartialObjectMetadata
	version string // of meta.k8s.io
	include string // with the rows of a table: None, Metadata or Object
}

const (
	includeNone   = "None"
	includeObject = "Object"
)

// conversionFor is the conversion that is to be made here of the response, nil for none. Where there is one, header is
// changed to ask the backend for plain JSON in full: what is converted has no byte in common with what a cache holds.
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

// negotiate reads the clauses of Accept in the order of preference. The first that can be answered decides: by the
// backend with its own format, or by a conversion.
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
			return nil // the backend can do this one itself
		case c.MediaType != "application/json":
			continue // we make JSON
		case as == "Table", as == "PartialObjectMetadata", as == "PartialObjectMetadataList":
			return &conversion{table: as == "Table", version: c.Params["v"]}
		}
	}
	return nil
}

// convertible reports whether a response can be converted: an error stays a Status, and a log stays text.
func convertible(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/json" && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}

// maxConverted bounds a list that is converted, or one event of a watch: it has to be held whole. A small memory limit bounds it
// further (ListMemory).
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

// relayConverted answers with the converted response. Nothing is written before it is converted, so that a response
// which cannot be converted becomes an error.
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

// writeConvertedHeader writes the header of a converted response, without what described the bytes of the backend's.
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

// relayEvents converts a watch event by event, and flushes each. It ends the watch between two events if there is no memory for the
// next one.
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
			err = out.Encode(e) // and a line feed
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
	decoder *json.Decoder // nil: it is to be made
}

// next returns the next event, converted and charged to the user. io.EOF is the end of the watch.
func (r *eventReader) next(ctx context.Context, conv *conversion, first bool) (e event, err error) {
	r.charge.release() // the event before was written
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

// event is one of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}
