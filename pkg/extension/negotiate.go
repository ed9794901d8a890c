package extension

import (
	"strings"

	"portico.dev/internal/respond"
)

// form is what is said of each object.
type form int

const (
	wholeForm    form = iota
	tableForm         // rows and columns for people
	metadataForm      // PartialObjectMetadata for controllers that need no more
)

// representation is how one answer is written.
type representation struct {
	media   string // respond.MediaJSON, MediaYAML or MediaProtobuf
	form    form
	version string // of meta.k8s.io, for the forms other than whole
	stream  bool   // the client named ;stream=watch and gets it echoed
}

func (rep representation) contentType() string {
	if rep.stream {
		return rep.media + ";stream=watch"
	}
	return rep.media
}

// offer is what a resource can be written as for one verb.
type offer struct {
	verb     string
	protobuf bool // the Go type has generated protobuf code
	// wholeOnly: there is neither a Table nor metadata of it.
	wholeOnly bool
}

// negotiate picks the representation for an Accept header: the first acceptable clause among those with the highest
// quality. Unlike the library it looks at transformation and encoding together, so that a metadata client that asks
// for protobuf first and JSON second is served whichever of the two exists.
func (o offer) negotiate(accept string) (representation, bool) {
	if strings.TrimSpace(accept) == "" {
		return representation{media: respond.MediaJSON}, true
	}
	for _, c := range respond.ParseAccept(accept) {
		if rep, ok := o.accept(c.MediaType, c.Params); ok {
			return rep, true
		}
	}
	return representation{}, false
}

func (o offer) accept(media string, params map[string]string) (representation, bool) {
	rep := representation{stream: params["stream"] == "watch" && o.verb == "watch"}
	switch media {
	case respond.MediaJSON, "application/*", "*/*":
		rep.media = respond.MediaJSON
	case respond.MediaYAML, respond.MediaProtobuf:
		rep.media = media
	default:
		return rep, false
	}
	if params["stream"] != "" && !rep.stream {
		return rep, false
	}
	var ok bool
	if rep.form, ok = o.form(params["as"]); !ok {
		return rep, false
	}
	if rep.form != wholeForm {
		rep.version = params["v"]
		if params["g"] != "meta.k8s.io" || (rep.version != "v1" && rep.version != "v1beta1") {
			return rep, false
		}
	} else if params["g"] != "" || params["v"] != "" {
		return rep, false
	}
	return rep, o.encodable(rep)
}

func (o offer) form(as string) (form, bool) {
	switch {
	case as == "":
		return wholeForm, true
	case o.wholeOnly:
		return wholeForm, false
	case as == "Table":
		return tableForm, true
	case as == "PartialObjectMetadata" && o.verb != "list", as == "PartialObjectMetadataList" && o.verb == "list":
		return metadataForm, true
	}
	return wholeForm, false
}

// encodable reports whether the media type can hold the form: YAML has no frames for a watch, and neither a Table nor a type
// without generated code has protobuf.
func (o offer) encodable(rep representation) bool {
	switch rep.media {
	case respond.MediaYAML:
		return o.verb != "watch"
	case respond.MediaProtobuf:
		return rep.form == metadataForm || rep.form == wholeForm && o.protobuf
	}
	return true
}

// acceptable lists what would have been accepted, for the 406.
func (o offer) acceptable() []string {
	media := []string{respond.MediaJSON}
	if o.verb != "watch" {
		media = append(media, respond.MediaYAML)
	}
	if o.protobuf {
		media = append(media, respond.MediaProtobuf)
	}
	return media
}
