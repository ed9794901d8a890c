package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	kjson "sigs.k8s.io/json"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
)

// Merged is a list with items from several backends.
type Merged struct {
	// Parts are the backends, in the order in which their items are listed.
	Parts []MergedPart
	// Keep reports whether an object listed by part belongs to the result. Otherwise another part lists it.
	Keep func(part int, namespace, name string) bool
}

// MergedPart is one of the backends of a merged list.
type MergedPart struct {
	// Name is the backend's name, for messages.
	Name        string
	Destination Destination
	// Missing is a short reason why the backend cannot be queried. It is empty if the backend can be queried.
	Missing string
}

// ServeMerged writes a list with the items of several backends. Each backend receives the identity of the client and
// authorizes the request itself. If a backend does not answer, the list contains the items of the other backends, and a
// Warning names the missing one. Only lists that are computed on demand and cannot be watched are merged. Lists of stored
// objects, which have a resource version, are not merged, because their clients would treat a missing object as deleted.
func (p *Proxy) ServeMerged(w http.ResponseWriter, r *filters.Request, m Merged) {
	charge := p.newListCharge(r.User, m.owner())
	defer charge.release()
	body, warning, refused, err := p.mergeList(w, r, &m, charge)
	if refused != nil {
		body = refused.body
	}
	if err == nil {
		err = charge.handOver(r.Context(), len(body))
	}
	switch {
	case err == nil && refused != nil:
		w.Header().Set("Content-Type", refused.contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(refused.code)
		_, _ = w.Write(body) // ignore the error: the client has disconnected
		return
	case err != nil:
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		r.Record.Failed(status.ErrStatus.Message)
		respond.AddAuditID(&status.ErrStatus, r.AuditID)
		respond.Error(w, r.Request, status)
		return
	}
	if warning != "" {
		if header, err := utilnet.NewWarningHeader(299, "-", warning); err == nil {
			w.Header().Add("Warning", header)
		}
	}
	w.Header().Set("Content-Type", respond.MediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // ignore the error: the client has disconnected
}

// owner returns the name to which a merged list is charged while it is read: all of its backends together. A list that
// waits for a slow backend uses the share of lists that include that backend, and not the shares of other lists.
func (m *Merged) owner() string {
	var names []string
	for i := range m.Parts {
		if part := &m.Parts[i]; part.Missing == "" {
			names = append(names, part.Destination.APIService, part.Destination.Backend.ServerName())
		}
	}
	return strings.Join(names, "\x00")
}

// partAnswer is the response of one backend.
type partAnswer struct {
	code        int
	contentType string
	body        []byte
	missing     string // why there is no response
}

var notForMerge = []string{"limit", "pretty"}

// mergeList returns the list and the text of the Warning. refused is a backend response that replaces the whole list. Each
// part gets its own charge, like the given one.
func (p *Proxy) mergeList(w http.ResponseWriter, r *filters.Request, m *Merged, charge *listCharge) (body []byte, warning string, refused *partAnswer, err error) {
	if !acceptsJSON(r.Header.Values("Accept")) {
		return nil, "", nil, respond.NotAcceptable(respond.MediaJSON)
	}
	if r.URL.Query().Get("continue") != "" {
		return nil, "", nil, apierrors.NewBadRequest("a list of several backends is not served in parts: leave out continue")
	}
	answers := make([]partAnswer, len(m.Parts))
	charges, errs := make([]listCharge, len(m.Parts)), make([]error, len(m.Parts))
	var room atomic.Int64
	room.Store(charge.max)
	var wg sync.WaitGroup
	for i := range m.Parts {
		part := &m.Parts[i]
		if part.Missing != "" {
			answers[i].missing = part.Missing
			continue
		}
		charges[i] = *charge
		defer charges[i].release()
		wg.Go(func() {
			asked := *r
			asked.Record = &filters.Record{} // the other parts are fetched concurrently
			x := p.exchange(w, &asked, part.Destination)
			if errs[i] = x.fetchList(&answers[i], &charges[i], &room); errs[i] != nil {
				status := x.statusOf(errs[i])
				p.log.Warn("merged list is incomplete", append(x.fields(), zap.Error(errs[i]))...)
				answers[i] = partAnswer{missing: status.ErrStatus.Message}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if apierrors.IsServiceUnavailable(err) { // memory was short: this is not a backend failure
			return nil, "", nil, err
		}
	}
	return combine(m, answers)
}

// fetchList reads the complete list of one backend, in JSON.
func (x *exchange) fetchList(into *partAnswer, charge *listCharge, room *atomic.Int64) error {
	if x.looped() {
		return errLoop
	}
	who := x.request.User
	if who == nil {
		return errNoUser
	}
	if err := x.dest.Backend.Admit(&x.slot, who.GetName()); err != nil {
		return err
	}
	defer x.slot.Release()
	defer x.endSpan(0, nil)
	header := x.requestHeader()
	if err := x.identify(header, who); err != nil {
		return err
	}
	if err := x.setURL(); err != nil {
		return err
	}
	if x.aliased() {
		if err := x.setAliasPath(); err != nil {
			return err
		}
	}
	x.url.RawQuery = rewriteQuery(x.url.RawQuery, "", notForMerge)
	header["Accept"] = []string{respond.MediaJSON}
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
		delete(header, name)
	}
	out, up := x.upstreamRequest(header, x.proxy.config.HeaderTimeout), &x.upstream
	defer up.release()
	resp, err := x.dest.Backend.RoundTrip(out)
	if err != nil {
		return up.wrap(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading the body already returned any error
	if err := up.checkEnded(); err != nil {
		return err
	}
	if err := x.checkStatus(resp); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		if !convertible(resp) {
			return errNotAnObject
		}
		if x.aliased() {
			if err := x.dest.Alias.rewrite(resp, false); err != nil {
				return err
			}
		}
	}
	into.code, into.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
	into.body, err = io.ReadAll(charge.reader(up, &shared{resp.Body, room, charge.max}))
	if err != nil {
		return up.wrap(err)
	}
	return nil
}

// shared reads at most the bytes that are left in the room shared by all parts.
type shared struct {
	io.Reader
	room *atomic.Int64
	max  int64 // limit of all parts together
}

func (s *shared) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if s.room.Add(-int64(n)) < 0 {
		return n, tooLargeError(s.max)
	}
	return n, err
}

// combine merges the answers into one list.
func combine(m *Merged, answers []partAnswer) (body []byte, warning string, refused *partAnswer, err error) {
	var out struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   struct{}          `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	var missing []string
	var unknown *partAnswer
	found := false
	for i := range answers {
		a := &answers[i]
		switch {
		case a.missing != "":
			missing = append(missing, m.Parts[i].Name+" ("+a.missing+")")
			continue
		case a.code == http.StatusNotFound: // the backend does not have the metric; another one may
			unknown = a
			continue
		case a.code >= 400 && a.code < 500 && a.code != http.StatusTooManyRequests:
			return nil, "", a, nil // applies to the client, for example a 403
		case a.code != http.StatusOK:
			missing = append(missing, m.Parts[i].Name+" (answered "+strconv.Itoa(a.code)+")")
			continue
		}
		list, err := parseList(m.Parts[i].Name, a.body)
		if err != nil {
			return nil, "", nil, err
		}
		if found && (list.Kind != out.Kind || list.APIVersion != out.APIVersion) {
			return nil, "", nil, apierrors.NewInternalError(errors.New("the backends of the list answered with " + out.APIVersion + " " + out.Kind + " and " + list.APIVersion + " " + list.Kind))
		}
		found, out.Kind, out.APIVersion = true, list.Kind, list.APIVersion
		if out.Items == nil {
			out.Items = make([]json.RawMessage, 0, len(list.Items))
		}
		for _, item := range list.Items {
			namespace, name, err := objectOf(item)
			if err != nil {
				return nil, "", nil, apierrors.NewInternalError(errors.New("backend " + m.Parts[i].Name + " answered with an item that is no object"))
			}
			if m.Keep(i, namespace, name) {
				out.Items = append(out.Items, item)
			}
		}
	}
	text := strings.Join(missing, "; ")
	switch {
	case found:
	case len(missing) > 0:
		return nil, "", nil, apierrors.NewServiceUnavailable("the server is currently unable to handle the request: no backend of the list answered: " + text)
	default:
		return nil, "", unknown, nil
	}
	if text != "" {
		warning = "the list is not complete: it lacks what these backends have: " + printable(text)
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(out)
	return buffer.Bytes(), warning, nil, err
}

type computedList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta   `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// parseList parses a list that was computed on demand.
func parseList(backend string, body []byte) (*computedList, error) {
	list := &computedList{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, list); err != nil || !strings.HasSuffix(list.Kind, "List") {
		return nil, apierrors.NewInternalError(errors.New("backend " + backend + " answered with JSON that is no list"))
	}
	if v := list.Metadata.ResourceVersion; v != "" && v != "0" || list.Metadata.Continue != "" {
		return nil, apierrors.NewBadRequest("the objects of the list are stored at several backends, " + backend + " among them, and lists with resource versions are not merged: " +
			"list by namespace or by name, so that the APIRoute selects one backend")
	}
	return list, nil
}

// objectOf returns the object that an item is or that a metric describes.
func objectOf(item json.RawMessage) (namespace, name string, err error) {
	var o struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
		DescribedObject *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"describedObject"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(item, &o); err != nil {
		return "", "", err
	}
	if o.DescribedObject != nil {
		return o.DescribedObject.Namespace, o.DescribedObject.Name, nil
	}
	return o.Metadata.Namespace, o.Metadata.Name, nil
}

// maxWarning limits the text of a Warning, part of which a backend may have chosen.
const maxWarning = 1 << 10

func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if len(text) > maxWarning {
		text = text[:maxWarning] + "..."
	}
	return text
}
