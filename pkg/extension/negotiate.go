package extension

import (
	"strings"

	"portico.dev/internal/respond"
)

// form is the part of each object that a response contains.
type form int

const (
	wholeForm    form = iota
	tableForm         // rows and columns for display
	metadataForm      // PartialObjectMetadata, for controllers that need only metadata
)

// representation is the encoding and form of a response.
type representation struct {
	media   string // respond.MediaJSON, MediaYAML or MediaProtobuf
	form    form
	version string // of meta.k8s.io, for the forms other than whole
	stream  bool   // the client sent ;stream=watch, which the response echoes
}

func (rep representation) contentType() string {
	if rep.stream {
		return rep.media + ";stream=watch"
	}
	return rep.media
}

// offer describes the representations of a resource for one verb.
type offer struct {
	verb     string
	protobuf bool // the Go type has generated protobuf code
	// wholeOnly disables Table and metadata forms.
	wholeOnly bool
}

// negotiate selects the representation for an Accept header: the first acceptable clause of the highest quality. Unlike
// k8s.io/apiserver, it considers transformation and encoding together, so that a metadata client that prefers protobuf and
// also accepts JSON gets the available one.
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

// encodable reports whether the media type can encode the form. YAML has no framing for a watch. A Table, or a type without
// generated code, has no protobuf encoding.
func (o offer) encodable(rep representation) bool {
	switch rep.media {
	case respond.MediaYAML:
		return o.verb != "watch"
	case respond.MediaProtobuf:
		return rep.form == metadataForm || rep.form == wholeForm && o.protobuf
	}
	return true
}

// acceptable lists the supported media types, for a 406 response.
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
