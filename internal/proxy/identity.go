package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/httpengine/httpmsg"
)

// maxIdentityBytes limits the total size of a request's identity headers, counted as in RFC 9113, section 6.5.2. Backends
// stop reading headers at 1 MiB, like kube-apiserver. An eighth is reserved for the other headers.
const maxIdentityBytes = httpmsg.MaxLargeHeader / 8 * 7

// IdentityHeaders are the names of the headers that identify a user. All of them have the encoding that kube-apiserver decodes.
type IdentityHeaders struct {
	User, UID, Group string
	// ExtraPrefix precedes the keys of the user's extra.
	ExtraPrefix string
}

// RequestHeaders are those of the request-header protocol, as published in extension-apiserver-authentication.
var RequestHeaders = IdentityHeaders{User: "X-Remote-User", UID: "X-Remote-Uid", Group: "X-Remote-Group", ExtraPrefix: "X-Remote-Extra-"}

// Contain reports whether a header in its canonical form is one of n. The second parameter makes it an argument of maps.DeleteFunc.
func (n IdentityHeaders) Contain(name string, _ []string) bool {
	return name == n.User || name == n.UID || name == n.Group || strings.HasPrefix(name, n.ExtraPrefix)
}

// identityError is an identity that cannot be sent to a backend unchanged.
type identityError struct {
	code int
	text string
}

func (e *identityError) Error() string { return e.text }

// WriteIdentity writes u into the headers of a request to a Target. It returns an error if u cannot be sent unchanged.
func WriteIdentity(h http.Header, names IdentityHeaders, u user.Info) error {
	return writeIdentity(h, &names, u, &headerValues{})
}

// writeIdentity writes the identity headers for u. It must be called last, when the rest of the header is complete.
func writeIdentity(h http.Header, names *IdentityHeaders, u user.Info, values *headerValues) error {
	w := identityWriter{header: h}
	if u.GetName() == "" {
		return &identityError{http.StatusForbidden, "the user has no name"}
	}
	w.set(names.User, values.one(u.GetName()))
	if uid := u.GetUID(); uid != "" {
		w.set(names.UID, values.one(uid))
	}
	w.set(names.Group, u.GetGroups())
	for key, values := range u.GetExtra() {
		w.set(names.ExtraPrefix+escapeExtra(key), values)
	}
	if w.err == nil && w.bytes > maxIdentityBytes {
		return &identityError{http.StatusRequestHeaderFieldsTooLarge,
			fmt.Sprintf("the user's name, groups and extra are larger than %d bytes", maxIdentityBytes)}
	}
	return w.err
}

type identityWriter struct {
	header http.Header
	bytes  int
	err    error
}

func (w *identityWriter) set(name string, values []string) {
	if len(values) == 0 {
		return
	}
	for _, v := range values {
		w.bytes += len(name) + len(v) + 32
		if w.err == nil && !intact(v) {
			w.err = &identityError{http.StatusBadRequest,
				fmt.Sprintf("a value of %s has a control byte, or a blank at its end, and cannot be sent unchanged", name)}
		}
	}
	// The slice is shared with the user object. The three-index slice makes an append copy it.
	w.header[name] = values[:len(values):len(values)]
}

// intact reports whether a header value arrives unchanged. Receivers trim blanks: " root" would become "root".
func intact(v string) bool {
	if v != "" && (v[0] == ' ' || v[len(v)-1] == ' ') {
		return false
	}
	for i := 0; i < len(v); i++ {
		if v[i] < 0x20 || v[i] == 0x7f {
			return false
		}
	}
	return true
}

// escapeExtra encodes a key of the user's extra as a header name. Receivers lower-case the name and then undo percent
// escapes. Upstream escapes bytes that are not token bytes; escaping upper case as well preserves it.
func escapeExtra(key string) string {
	i := 0
	for i < len(key) && plainExtra(key[i]) {
		i++
	}
	if i == len(key) {
		return key
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(key) + 16)
	for i := 0; i < len(key); i++ {
		if c := key[i]; plainExtra(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// plainExtra reports whether c is a token byte of RFC 7230 that lower-casing and unescaping leave unchanged.
func plainExtra(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0
}
