package proxy

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// shape is what a client wants to be made of a backend's objects, and the backend cannot make.
type shape struct {
	table   bool   // a Table, or else PartialObjectMetadata
	version string // of meta.k8s.io
	include string // with the rows of a table: None, Metadata or Object
}

const (
	includeNone   = "None"
	includeObject = "Object"
)

// wanted is the shape that is to be made here of the answer, nil for none. Where there is one, header is changed to ask
// the backend for plain JSON that it need not have sent before: what is converted has no byte in common with what a
// cache holds.
func (x *exchange) wanted(header http.Header) *shape {
	t := &x.target
	if !t.ConvertTable && !t.ConvertMetadata || x.r.Method != http.MethodGet || x.info == nil || !x.info.IsResourceRequest {
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

// negotiate reads the clauses of Accept in the order of preference. The first that somebody can answer decides: the
// backend with something plain, or we with a shape.
func (x *exchange) negotiate(accept []string) *shape {
	for _, c := range clauses(accept) {
		as := c.params["as"]
		switch {
		case as == "":
			return nil
		case c.params["g"] != "meta.k8s.io" || c.params["v"] != "v1" && c.params["v"] != "v1beta1":
			continue
		}
		convert := x.target.ConvertMetadata
		if as == "Table" {
			convert = x.target.ConvertTable
		}
		switch {
		case !convert:
			return nil // the backend can do this one itself
		case c.media != "application/json":
			continue // we make JSON
		case as == "Table", as == "PartialObjectMetadata", as == "PartialObjectMetadataList":
			return &shape{table: as == "Table", version: c.params["v"]}
		}
	}
	return nil
}

// clause is one of the media types that a client accepts.
type clause struct {
	media  string
	params map[string]string
	q      float64
}

// maxClauses is far more than any client sends.
const maxClauses = 32

func clauses(accept []string) []clause {
	var list []clause
	for _, value := range accept {
		for text := range strings.SplitSeq(value, ",") {
			media, params, err := mime.ParseMediaType(strings.TrimSpace(text))
			if err != nil || len(list) == maxClauses {
				continue
			}
			q := 1.0
			if given, err := strconv.ParseFloat(params["q"], 64); err == nil {
				q = given
			}
			if q > 0 {
				list = append(list, clause{media, params, q})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b clause) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	return list
}

// convertible reports whether a response is one that a shape is made of: an error stays a Status, and a log stays text.
func convertible(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/json" && resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == ""
}
