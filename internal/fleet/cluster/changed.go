package cluster

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
)

// Change is a document of a cluster that is changed before it is served.
type Change struct {
	// Path and Accept select the document of the cluster.
	Path, Accept string
	// Version differs if the changed document differs, or its Content-Type.
	Version string
	// IfMissing is set if Apply is called, with a nil document, also if the cluster answers 404.
	IfMissing bool
	// Apply returns the changed document and its Content-Type.
	Apply func(document []byte, contentType string) ([]byte, string, error)
}

const (
	// JSON is a Change.Accept for documents in JSON.
	JSON = plain
	// AggregatedJSON is a Change.Accept for aggregated discovery. A cluster that does not have it responds with the legacy document.
	AggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)

// changedQuery marks changed documents. The queries of other documents are empty or contain a hash.
const changedQuery = "changed"

// ServeChanged serves a changed document to a user to whom the cluster serves the document. It returns false if the cluster does not:
// then its response must be served.
func (c *Cluster) ServeChanged(w http.ResponseWriter, r *filters.Request, x *Change) bool {
	source, err := c.documents.load(r, variant{path: x.Path, accept: x.Accept})
	var status statusError
	switch {
	case err == nil:
	case x.IfMissing && errors.As(err, &status) && status == http.StatusNotFound:
		source = &document{}
	default:
		return false
	}
	made, err := c.documents.change(source, x)
	if err != nil {
		respond.Error(w, r.Request, err)
		return true
	}
	r.Record.ServedBy = "cluster"
	served := *made
	served.warnings = source.warnings
	served.serve(w, r.Request)
	return true
}

// change returns a changed document. The last one for each path and version is kept.
func (d *documents) change(source *document, x *Change) (*document, error) {
	v, of := variant{path: x.Path, query: changedQuery, accept: x.Version}, source.ETag+"\n"+source.ContentType
	if known := d.get(v); known != nil && known.source == of {
		return known, nil
	}
	made, err, _ := d.fetches.Do(changedQuery+"\n"+x.Path+"\n"+x.Version+"\n"+of, func() (any, error) {
		body, contentType, err := x.apply(source)
		if err != nil {
			return nil, err
		}
		packed, err := respond.Pack(body, gzip.DefaultCompression)
		if err != nil {
			return nil, err
		}
		made := &document{at: source.at, source: of, Document: respond.Document{
			ETag: strconv.Quote(respond.Hash(body)), ContentType: contentType, CacheControl: source.CacheControl, Vary: "Accept", Gzip: packed,
		}}
		d.put(v, made)
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return made.(*document), nil
}

func (x *Change) apply(source *document) ([]byte, string, error) {
	if source.Gzip == nil {
		return x.Apply(nil, "")
	}
	r, err := respond.Unpack(source.Gzip)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(io.LimitReader(r, maxDocument))
	if err != nil {
		return nil, "", err
	}
	return x.Apply(body, source.ContentType)
}
