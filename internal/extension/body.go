package extension

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// gzipThreshold is the size from which kube-apiserver compresses: below it, the time is not worth the bytes.
const gzipThreshold = 128 << 10

// writeBody answers 200 with a whole body, compressed when it is large and the client can read it.
func writeBody(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if h.Get("Cache-Control") == "" {
		// What a caller may see must not be kept by a cache in between and shown to another.
		h.Set("Cache-Control", "no-cache, private")
	}
	if len(body) < gzipThreshold || !acceptsGzip(r) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = w.Write(body) // the client is gone; there is nobody to tell
		}
		return
	}
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic("extension: " + err.Error()) // only for a level that does not exist
	}
	_, _ = z.Write(body)
	_ = z.Close()
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			return strings.TrimSpace(params) != "q=0"
		}
	}
	return false
}
