package differential

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answers are what an extension server may say, well or badly, by name. A number is a code with a Status.
func answers(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	text := func(code int, body string) {
		h.Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body) // whoever asked is gone
	}
	if code, err := strconv.Atoi(name); err == nil {
		say(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": "as told", "reason": "AsTold", "code": code})
		return
	}
	switch name {
	case "redirect":
		h.Set("Location", "https://elsewhere.example.com/")
		text(http.StatusFound, "moved")
	case "redirect-within":
		h.Set("Location", "/apis/"+group+"/v1/echoes")
		text(http.StatusMovedPermanently, "moved")
	case "redirect-nowhere":
		text(http.StatusFound, "moved")
	case "unchanged":
		h.Set("ETag", `"one"`)
		w.WriteHeader(http.StatusNotModified)
	case "created":
		h.Set("Location", "/apis/"+group+"/v1/echoes/new")
		text(http.StatusCreated, "made")
	case "early":
		h.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		text(http.StatusOK, "late")
	case "trailers":
		h.Set("Trailer", "X-Sum")
		text(http.StatusOK, "body")
		h.Set("X-Sum", "4")
		h.Set(http.TrailerPrefix+"X-Late", "yes")
	case "html":
		h.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<html><head></head><body><a href="/other">other</a></body></html>`)
	case "kept":
		h.Set("Cache-Control", "public, max-age=60")
		h.Set("Expires", "Thu, 01 Jan 2037 00:00:00 GMT")
		h.Set("Etag", `"two"`)
		text(http.StatusOK, "kept")
	case "theirs":
		for name, value := range map[string]string{
			"Audit-Id": "theirs", "X-Kubernetes-Pf-Flowschema-Uid": "theirs", "Warning": `299 - "of the backend"`, "Via": "1.1 theirs",
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true", "Access-Control-Expose-Headers": "X",
			"Access-Control-Max-Age": "5", "Strict-Transport-Security": "max-age=1", "Server": "theirs", "X-Powered-By": "theirs", "Vary": "Accept",
		} {
			h.Set(name, value)
		}
		text(http.StatusOK, "theirs")
	case "cookie":
		h.Set("Set-Cookie", "a=b")
		text(http.StatusOK, "baked")
	case "packed":
		h.Set("Content-Type", "text/plain")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "unpacked")
			_ = z.Close()
			return
		}
		_, _ = io.WriteString(w, "plain")
	case "nothing":
		w.WriteHeader(http.StatusNoContent)
	case "slow-down":
		h.Set("Retry-After", "7")
		text(http.StatusTooManyRequests, "later")
	case "who":
		h.Set("Www-Authenticate", `Basic realm="theirs"`)
		text(http.StatusUnauthorized, "who")
	case "silent":
		<-r.Context().Done()
	case "broken":
		panic(http.ErrAbortHandler)
	default:
		text(http.StatusNotFound, "no such answer")
	}
}

// tunnel switches protocols, or says what it says instead; then it sends back what comes.
func tunnel(w http.ResponseWriter, r *http.Request, name string) {
	if code, err := strconv.Atoi(name); err == nil {
		answers(w, r, strconv.Itoa(code))
		return
	}
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") == "" {
		echo(w, r)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil { // closing the server does not end it
		return
	}
	protocol := r.Header.Get("Upgrade")
	if name == "other" {
		protocol = "other"
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	if name == "request" {
		_, _ = io.WriteString(conn, headOf(r))
		return
	}
	line, err := bufio.NewReader(io.LimitReader(buffered, largest)).ReadString('\n')
	if err == nil {
		_, _ = io.WriteString(conn, line)
	}
}

// headOf is what an upgrade came with.
func headOf(r *http.Request) string {
	var b strings.Builder
	b.WriteString(r.Method + " " + r.RequestURI + "\nHost: " + r.Host + "\n")
	_ = r.Header.WriteSubset(&b, map[string]bool{"Audit-Id": true})
	return b.String()
}
