package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
)

// Clients that request initial events wait for the bookmark that ends them. If a backend treats such a watch as a plain
// one, its client waits forever (kubernetes/kubernetes#140890, antrea#8123). The proxy either answers such watches with
// 422, after which client-go falls back to a list and a plain watch, which every server supports; or it makes the initial
// events from the same two requests.
//
// The result is as complete as client-go's list and watch: the watch begins at the resource version of the list. Both
// requests carry the client's identity, so that the backend authorizes each of them.

// InitialEvents selects how the proxy serves watches that request initial events.
type InitialEvents int

const (
	// PassInitialEvents forwards the watch to the backend.
	PassInitialEvents InitialEvents = iota
	// MakeInitialEvents makes the initial events from a list.
	MakeInitialEvents
	// RejectInitialEvents answers 422, because the APIService requires it.
	RejectInitialEvents
	// RejectUnprovenInitialEvents answers 422, because the backend ignores sendInitialEvents or is not known to support it.
	RejectUnprovenInitialEvents
)

// checkInitialEvents refuses a watch with initial events if the backend would ignore sendInitialEvents. made reports that
// the proxy must make the initial events.
func (x *exchange) checkInitialEvents() (made bool, err error) {
	if x.dest.InitialEvents == PassInitialEvents || !AsksInitialEvents(x.request) {
		return false, nil
	}
	switch x.dest.InitialEvents {
	case MakeInitialEvents:
		return true, x.checkMadeEvents()
	case RejectInitialEvents:
		return false, x.rejectInitialEvents(" does not support it")
	default:
		return false, x.rejectInitialEvents(" ignores it, or has not been probed for it yet")
	}
}

// rejectInitialEvents returns a 422.
func (x *exchange) rejectInitialEvents(why string) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"), "the extension server of APIService "+x.dest.APIService+why+"; list first, then watch"),
	})
}

// AsksInitialEvents reports whether a request is a watch with initial events. It parses the parameter like
// k8s.io/apimachinery: every value except "0" and "false" is true.
func AsksInitialEvents(r *filters.Request) bool {
	const name = "sendInitialEvents"
	if r.Info.Verb != "watch" || !strings.Contains(r.URL.RawQuery, name) {
		return false
	}
	values, ok := r.URL.Query()[name]
	return ok && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// checkMadeEvents refuses watches if their initial events cannot be made. This is not a client error: the client may list
// instead.
func (x *exchange) checkMadeEvents() error {
	q := x.r.URL.Query()
	switch {
	case q.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan):
		return x.rejectInitialEvents(" has it made by the front door, which requires resourceVersionMatch=NotOlderThan")
	case x.info.Subresource != "" || !q.Has("watch") || x.r.Method != http.MethodGet || x.r.Header["Upgrade"] != nil:
		return x.rejectInitialEvents(" has it made by the front door, for collections and without upgrades only")
	case !acceptsJSON(x.r.Header.Values("Accept")):
		return x.rejectInitialEvents(" has it made by the front door, in application/json only")
	}
	return nil
}

// acceptsJSON reports whether a client accepts plain JSON.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	return slices.ContainsFunc(respond.ParseAccept(accept...), func(c respond.Clause) bool {
		return c.Params["as"] == "" && (c.MediaType == respond.MediaJSON || c.MediaType == "application/*" || c.MediaType == "*/*")
	})
}

// maxPages is the maximum number of pages of a backend's list.
const maxPages = 1000

var (
	errNoResourceVersion = &responseError{
		reason: "BackendProtocol", code: http.StatusOK, text: "answered with a list without a resource version, at which no watch can begin",
	}
	errManyPages = &responseError{reason: "BackendProtocol", code: http.StatusOK, text: "answered with a list that has no end"}
)

// makeInitialEvents writes an event for each object of a list, the bookmark that ends them, and then a watch from the
// resource version of the list. It writes nothing before the watch has begun, so that a failure until then becomes an error
// with its own status code.
func (x *exchange) makeInitialEvents(header http.Header) error {
	header["Accept"] = []string{respond.MediaJSON}
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
		delete(header, name)
	}
	out, up := x.upstreamRequest(header, x.proxy.config.HeaderTimeout), &x.upstream
	defer up.release()
	out.Body, out.ContentLength = nil, 0 // the same request is sent several times
	charge := x.listCharge()
	defer charge.release()
	events, version, refused, err := x.listEvents(out, charge)
	if err != nil {
		return up.wrap(err)
	}
	if refused != nil {
		charge.release()
		defer func() { _ = refused.Body.Close() }() // reading the body already returned any error
		x.becomeLongRunning()
		x.relay(refused, up)
		return nil
	}
	resp, err := x.send(out, rewriteQuery(x.r.URL.RawQuery, "resourceVersion="+url.QueryEscape(version), notForWatch))
	if err != nil {
		return up.wrap(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading the body already returned any error
	if err := charge.handOver(up, events.Len()); err != nil {
		return up.wrap(err)
	}
	x.becomeLongRunning()
	if convertible(resp) {
		delete(resp.Header, "Content-Length")
		resp.ContentLength = -1
		resp.Body = prefixed{io.MultiReader(&heldBuffer{events, charge}, resp.Body), resp.Body}
	} else if resp.StatusCode == http.StatusOK {
		return errNotAnObject
	}
	x.relay(resp, up)
	return nil
}

// prefixed is a body with data in front of it.
type prefixed struct {
	io.Reader
	io.Closer
}

// send sends a copy of out with a different query, and checks the status of the response.
func (x *exchange) send(out *http.Request, query string) (*http.Response, error) {
	r := out.WithContext(out.Context())
	u := *out.URL
	u.RawQuery, u.ForceQuery = query, false
	r.URL, r.Header = &u, maps.Clone(out.Header)
	resp, err := x.dest.Backend.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err = x.upstream.checkEnded(); err == nil {
		err = x.checkStatus(resp)
	}
	if err == nil && x.aliased() {
		values := u.Query()["watch"]
		err = x.dest.Alias.rewrite(resp, len(values) > 0)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// Parameters of a watch that are removed from its list and from its plain watch.
var (
	notForList  = []string{"watch", "sendInitialEvents", "resourceVersionMatch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds", "limit", "continue", "pretty"}
	notForWatch = []string{"sendInitialEvents", "resourceVersionMatch", "resourceVersion", "limit", "continue", "pretty"}
)

// rewriteQuery removes parameters from a query and appends add unless it is empty. All other parameters stay byte for byte.
func rewriteQuery(query, add string, leaveOut []string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if decoded, err := url.QueryUnescape(name); part != "" && (err != nil || !slices.Contains(leaveOut, decoded)) {
			kept = append(kept, part)
		}
	}
	if add != "" {
		kept = append(kept, add)
	}
	return strings.Join(kept, "&")
}

// listEvents lists, and returns the initial events including their bookmark, if the client wants one, and the resource
// version of the list. refused is a backend response other than a list, which is relayed to the client.
func (x *exchange) listEvents(out *http.Request, charge *listCharge) (events *bytes.Buffer, version string, refused *http.Response, err error) {
	made := eventMaker{}
	next := ""
	for range maxPages {
		resp, err := x.send(out, rewriteQuery(x.r.URL.RawQuery, next, notForList))
		if err != nil {
			return nil, "", nil, err
		}
		if resp.StatusCode != http.StatusOK {
			return nil, "", resp, nil
		}
		token, err := made.addPage(resp, charge.reader(out.Context(), resp.Body))
		if err != nil {
			return nil, "", nil, err
		}
		if token == "" {
			err = made.end(x.r.URL.Query().Get("allowWatchBookmarks"))
			charge.reduce(int64(made.events.Len()))
			return &made.events, made.version, nil, err
		}
		next = "continue=" + url.QueryEscape(token)
	}
	return nil, "", nil, errManyPages
}

// eventMaker makes events from the pages of a list.
type eventMaker struct {
	events        bytes.Buffer
	kind, version string
	apiVersion    string
}

// addPage adds an event for each object of a page, which it reads from the body of a response. It returns the continue
// token of the next page, or "" for the last page. It closes the response.
func (m *eventMaker) addPage(resp *http.Response, page io.Reader) (next string, err error) {
	defer func() { _ = resp.Body.Close() }() // nothing was written
	if !convertible(resp) {
		return "", errNotAnObject
	}
	body, err := io.ReadAll(page)
	if err != nil {
		return "", err
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil || list.APIVersion == "" || !strings.HasSuffix(list.Kind, "List") {
		return "", errNotAnObject
	}
	if list.Metadata.ResourceVersion == "" || list.Metadata.ResourceVersion == "0" {
		return "", errNoResourceVersion // 0 means any version: a watch from it begins with its own initial events
	}
	m.kind, m.apiVersion, m.version = strings.TrimSuffix(list.Kind, "List"), list.APIVersion, list.Metadata.ResourceVersion
	for _, item := range list.Items {
		if err := m.add("ADDED", item); err != nil {
			return "", err
		}
	}
	return list.Metadata.Continue, nil
}

// add adds one event. Objects in Kubernetes lists have neither kind nor apiVersion; objects in events have both.
func (m *eventMaker) add(kind string, object json.RawMessage) error {
	var has metav1.TypeMeta
	if json.Unmarshal(object, &has) != nil {
		return errNotAnObject
	}
	if has.Kind == "" || has.APIVersion == "" {
		var fields map[string]json.RawMessage
		if json.Unmarshal(object, &fields) != nil || fields == nil {
			return errNotAnObject
		}
		for name, value := range map[string]string{"kind": m.kind, "apiVersion": m.apiVersion} {
			text, err := json.Marshal(value)
			if err != nil {
				return err
			}
			fields[name] = text
		}
		whole, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		object = whole
	}
	return json.NewEncoder(&m.events).Encode(event{kind, object}) // Encode appends a newline
}

// end adds the bookmark, unless the client does not want one.
func (m *eventMaker) end(wanted string) error {
	if wanted == "" || wanted == "0" || strings.EqualFold(wanted, "false") {
		return nil
	}
	object, err := json.Marshal(map[string]any{
		"kind": m.kind, "apiVersion": m.apiVersion,
		"metadata": map[string]any{"resourceVersion": m.version, "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	})
	if err != nil {
		return err
	}
	return m.add("BOOKMARK", object)
}
