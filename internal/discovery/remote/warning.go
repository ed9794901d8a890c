package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/net"

	"portico.dev/internal/respond"
)

const (
	// warningCode is for warnings that a cache keeps (RFC 7234, section 5.5.7). kubectl and client-go print only these.
	warningCode = 299
	// A warning names maxNamed APIServices at most, and fewer if their part of the text would be longer than maxNames
	// bytes.
	maxNamed = 5
	maxNames = 480
	// tagPrecision is the precision of the time in the tag. Replicas detect an outage seconds apart, and should use the
	// same tag. An outage hours later has a different tag.
	tagPrecision = 10 * time.Minute
	// maxWhy limits the text about one APIService, part of which may come from a backend.
	maxWhy = 120
)

// StaleAPIService is an APIService with resources that clients omit, and the reason.
type StaleAPIService struct {
	Name string
	// Unavailable is set if Reason is the reason of its condition Available, and Since the time of the condition's last
	// transition, zero if not known. Otherwise the backend is available, and Reason briefly describes why its documents are
	// not current.
	Unavailable bool
	Reason      string
	Since       time.Time
}

// Warning is the header with which a document informs clients about resources that they omit. It is immutable. A nil
// Warning writes no header.
type Warning struct {
	text, header, tag string
}

// NewWarning returns the warning about some APIServices, or nil if stale is empty.
func NewWarning(stale []StaleAPIService) *Warning {
	if len(stale) == 0 {
		return nil
	}
	names, size, sum := []string{}, 0, sha256.New()
	for _, s := range stale {
		name := s.String()
		if size += len(name); len(names) == maxNamed || len(names) > 0 && size > maxNames {
			break
		}
		names = append(names, name)
		s.Since = s.Since.Truncate(tagPrecision)
		fmt.Fprintln(sum, s)
	}
	fmt.Fprint(sum, len(stale))
	if more := len(stale) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	w := &Warning{text: strings.Join(names, "; ") + ": its resources are left out"}
	if len(stale) > 1 {
		w.text = strings.Join(names, "; ") + ": their resources are left out"
	}
	header, err := net.NewWarningHeader(warningCode, "-", w.text)
	if err != nil {
		panic(err) // printable ASCII is always valid
	}
	w.header, w.tag = header, hex.EncodeToString(sum.Sum(nil)[:8])
	return w
}

// String returns the text of the 503 response to a request for one of its objects.
func (s StaleAPIService) String() string {
	why := printable(s.Reason)
	if len(why) > maxWhy {
		why = why[:maxWhy] + "..."
	}
	name := "APIService " + printable(s.Name)
	switch {
	case !s.Unavailable:
		return name + " is stale (" + why + ")"
	case why == "":
		return name + " is unavailable"
	case s.Since.IsZero():
		return name + " is unavailable (" + why + ")"
	}
	return name + " is unavailable (" + why + " since " + s.Since.UTC().Format(time.RFC3339) + ")"
}

// printable replaces characters that must not be in a header: a backend may have chosen some of the text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// Text returns the text that clients print, empty for a nil Warning.
func (w *Warning) Text() string {
	if w == nil {
		return ""
	}
	return w.text
}

// ETag returns the tag of a document that is served with the warning, given its tag without.
//
// The two differ, because HTTP caches keep the Warning of a stored response, and kubectl's cache prints it again after each
// 304. A 304 must therefore mean that the warning has not changed either.
func (w *Warning) ETag(etag string) string {
	if w == nil {
		return etag
	}
	return strings.TrimSuffix(etag, `"`) + "-" + w.tag + `"`
}

// Serve serves a document with the warning. A 304 has no Warning, because the Warning of the stored response is still
// valid.
func (w *Warning) Serve(response http.ResponseWriter, r *http.Request, d *respond.Document) {
	if w == nil {
		d.Serve(response, r)
		return
	}
	warned := *d
	warned.ETag = w.ETag(d.ETag)
	if !respond.ETagMatches(r, warned.ETag) {
		response.Header().Add("Warning", w.header)
	}
	warned.Serve(response, r)
}
