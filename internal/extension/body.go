package extension

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

const (
	// gzipThreshold is the size from which kube-apiserver compresses: below it, the time is not worth the bytes.
	gzipThreshold = 128 << 10
	codingGzip    = "gzip"
)

// writeBody answers with a whole body, which is in coding already.
func writeBody(w http.ResponseWriter, r *http.Request, code int, contentType, coding string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if h.Get("Cache-Control") == "" {
		// What a caller may see must not be kept by a cache in between and shown to another.
		h.Set("Cache-Control", "no-cache, private")
	}
	if len(body) >= gzipThreshold || coding != "" {
		h.Add("Vary", "Accept-Encoding")
	}
	if coding != "" {
		h.Set("Content-Encoding", coding)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone; there is nobody to tell
	}
}

// compresses reports whether an answer of so many bytes is worth compressing, and whether the client can read that.
func compresses(r *http.Request, size int) bool { return size >= gzipThreshold && acceptsGzip(r) }

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), codingGzip) {
			return strings.TrimSpace(params) != "q=0"
		}
	}
	return false
}

// isGzip tells a compressed body by its first bytes, with which none of our encodings begins.
func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b}) }
