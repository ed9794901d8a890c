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

	"portico.dev/internal/httpmsg"
)

// maxIdentityBytes bounds the identity headers of one request (attack row A11). The server bounds all headers before.
const maxIdentityBytes = httpmsg.MaxLargeHeader

// Headers are the names under which a front proxy states an identity. Names are matched as HTTP does, in any case.
type Headers struct {
	// Username: the first of these headers that is present names the user. Usually X-Remote-User.
	Username []string
	// UID: likewise. Usually X-Remote-Uid; upstream has no default for it, so older front proxies do not send it.
	UID []string
	// Group: every value of every one of these is a group. Usually X-Remote-Group.
	Group []string
	// ExtraPrefix: a header that begins with one of these is an extra attribute. Usually X-Remote-Extra-.
	ExtraPrefix []string
}

// wellKnown are always removed, configured or not: a server behind us may be configured to trust them.
var wellKnown = Headers{
	Username:    []string{"X-Remote-User"},
	UID:         []string{"X-Remote-Uid"},
	Group:       []string{"X-Remote-Group"},
	ExtraPrefix: []string{"X-Remote-Extra-"},
}

// Claimed reports whether h states a user name, trusted or not, under a configured header or the usual one.
func (n Headers) Claimed(h http.Header) bool {
	return slices.ContainsFunc(append(wellKnown.Username[:1:1], n.Username...), func(name string) bool {
		return len(h[textproto.CanonicalMIMEHeaderKey(name)]) > 0
	})
}

// identity is the user that h states, nil when it states none. It is worth nothing until the sender's certificate has
// been verified.
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

// single is the value of the first of names that h has. A proxy that sends two has let one of its client's through
// (attack row A7), and there is no telling which.
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

// extra collects the extra attributes. Two header names may decode to one key (A and %41); their values are joined in
// the order of the header names, so that the answer does not depend on map order.
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

// ExtraKey is the attribute name that the rest of a header name stands for. Header names lose their case on the way,
// so it is put in lower case first; capitals that matter were escaped by the sender, which is why the escapes are
// undone after it: %41 is "A". What cannot be unescaped stands for itself, as in Kubernetes.
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

// Strip removes every identity header from a request, in any spelling, and from its trailers. Names are folded as the most
// careless of backends fold them (httpmsg.FoldName): servers exist that read X_Remote.User as X-Remote-User (attack row A8:
// CVE-2025-64484 and others). What is no token is no name, and goes too.
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

// trimmed is n without the blanks that were configured around names.
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

// names reports whether a header is one of these, in any spelling. Every request is looked at, each of its headers with each
// name: nothing is allocated.
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
