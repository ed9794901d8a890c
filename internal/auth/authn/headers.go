package authn

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/httpengine/httpmsg"
)

// maxIdentityBytes limits the identity headers of a request (attack row A11). The server's limit for all headers
// applies first.
const maxIdentityBytes = httpmsg.MaxLargeHeader

// Headers are the names of the headers in which a front proxy asserts an identity. Names are case-insensitive.
type Headers struct {
	// Username: the first of these headers that is present contains the user name. Usually X-Remote-User.
	Username []string
	// UID: the first of these headers that is present contains the UID. Usually X-Remote-Uid. Upstream has no
	// default, so older front proxies do not send it.
	UID []string
	// Group: every value of each of these headers is a group. Usually X-Remote-Group.
	Group []string
	// ExtraPrefix: a header with one of these prefixes is an extra attribute. Usually X-Remote-Extra-.
	ExtraPrefix []string
}

// wellKnown headers are always removed, because a backend may be configured to trust them.
var wellKnown = Headers{
	Username:    []string{"X-Remote-User"},
	UID:         []string{"X-Remote-Uid"},
	Group:       []string{"X-Remote-Group"},
	ExtraPrefix: []string{"X-Remote-Extra-"},
}

// Claimed reports whether h contains a user name, trusted or not, in a configured header or X-Remote-User.
func (n Headers) Claimed(h http.Header) bool {
	return slices.ContainsFunc(append(wellKnown.Username[:1:1], n.Username...), func(name string) bool {
		return len(h[textproto.CanonicalMIMEHeaderKey(name)]) > 0
	})
}

// identity returns the user in h, or nil if there is none. The result is not trustworthy until the sender's
// certificate has been verified.
func (n Headers) identity(h http.Header) (user.Info, error) {
	if err := n.checkSize(h); err != nil {
		return nil, err
	}
	name, err := single(h, n.Username)
	if err != nil || name == "" {
		return nil, err
	}
	uid, err := single(h, n.UID)
	if err != nil {
		return nil, err
	}
	extra, err := n.extra(h)
	if err != nil {
		return nil, err
	}
	return &user.DefaultInfo{Name: name, UID: uid, Groups: n.groups(h), Extra: extra}, nil
}

// single returns the value of the first header of names that is present and not empty. A repeated header is an error:
// the proxy forwarded a client's header next to its own, and the two cannot be distinguished (attack row A7).
func single(h http.Header, names []string) (string, error) {
	for _, name := range names {
		switch values := h[textproto.CanonicalMIMEHeaderKey(name)]; {
		case len(values) > 1:
			return "", fmt.Errorf("the front proxy sent %s more than once", name)
		case len(values) == 1 && values[0] != "":
			return values[0], nil
		}
	}
	return "", nil
}

func (n Headers) groups(h http.Header) []string {
	var groups []string
	for _, name := range n.Group {
		for _, v := range h[textproto.CanonicalMIMEHeaderKey(name)] {
			if v != "" {
				groups = append(groups, v)
			}
		}
	}
	return groups
}

// extra returns the extra attributes. Different header names may decode to the same key (A and %41). Their values are
// joined in the order of the header names, so the result does not depend on map order.
func (n Headers) extra(h http.Header) (map[string][]string, error) {
	var extra map[string][]string
	for _, prefix := range n.ExtraPrefix {
		var names []string
		for name := range h {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			key := ExtraKey(name[len(prefix):])
			if strings.ContainsFunc(key, isControl) {
				return nil, errors.New("an extra attribute's name has a control character")
			}
			if extra == nil {
				extra = make(map[string][]string)
			}
			extra[key] = append(extra[key], h[name]...)
		}
	}
	return extra, nil
}

// ExtraKey returns the attribute name for the rest of a header name. Header names do not preserve case, so the name
// is lowercased first. Capitals that matter were escaped by the sender, so unescaping comes second: %41 is "A". A
// name that cannot be unescaped is used as it is, as in Kubernetes.
func ExtraKey(suffix string) string {
	lower := strings.ToLower(suffix)
	if key, err := url.PathUnescape(lower); err == nil {
		return key
	}
	return lower
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

func (n Headers) checkSize(h http.Header) error {
	n = n.trimmed()
	size := 0
	for name, values := range h {
		if !n.names(name) {
			continue
		}
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > maxIdentityBytes {
		return fmt.Errorf("the identity headers have more than %d bytes", maxIdentityBytes)
	}
	return nil
}

// Strip removes all identity headers from a request and its trailers. Names are compared with the loosest folding
// that any backend is known to apply (httpmsg.FoldName): some servers read X_Remote.User as X-Remote-User (attack row
// A8: CVE-2025-64484 and others). Names that are not valid tokens are removed too.
func (n Headers) Strip(r *http.Request) {
	n = n.trimmed()
	for _, h := range [...]http.Header{r.Header, r.Trailer} {
		if len(h) == 0 {
			continue
		}
		for name := range h {
			if !httpmsg.IsToken(name) || wellKnown.names(name) || n.names(name) {
				delete(h, name)
			}
		}
	}
}

// trimmed returns n without whitespace around the configured names.
func (n Headers) trimmed() Headers {
	for _, list := range [...]*[]string{&n.Username, &n.UID, &n.Group, &n.ExtraPrefix} {
		for i, name := range *list {
			if trimmed := strings.TrimSpace(name); trimmed != name {
				*list = slices.Clone(*list)
				(*list)[i] = trimmed
			}
		}
	}
	return n
}

// names reports whether header is one of n, in any spelling. It runs for every header of every request and does not
// allocate.
func (n Headers) names(header string) bool {
	for _, list := range [...][]string{n.Username, n.UID, n.Group} {
		for _, name := range list {
			if len(header) == len(name) && httpmsg.HasFoldedPrefix(header, name) {
				return true
			}
		}
	}
	for _, prefix := range n.ExtraPrefix {
		if httpmsg.HasFoldedPrefix(header, prefix) {
			return true
		}
	}
	return false
}
