package differential

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"portico.dev/internal/pki"
	"portico.dev/internal/run/freeport"
)

// group is the API group that a backend serves.
const group = "differential.example.com"

// backend is an extension server that echoes requests or sends a response selected by the request. Each server under
// test has its own backend.
type backend struct {
	// CA is the authority of its certificate. OtherCA is an unrelated authority.
	CA, OtherCA []byte
	// Port is the listening port on loopback. Dead is a port without a listener, which the kernel does not assign as
	// an ephemeral port.
	Port, Dead int

	server *http.Server
	ended  chan struct{}
}

// startBackend starts a backend for Services in the namespace. The caller must close it.
func startBackend(namespace string) (*backend, error) {
	authority, err := pki.NewAuthority("backend")
	if err != nil {
		return nil, err
	}
	other, err := pki.NewAuthority("stranger")
	if err != nil {
		return nil, err
	}
	certificate, key, err := authority.Issue(pki.Leaf{CommonName: "backend", DNSNames: []string{"backend." + namespace + ".svc"}, Server: true, TTL: 30 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	pair, err := pki.StaticKeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	var ports freeport.Ports
	dead, err := ports.Free()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &backend{
		CA: authority.PEM(), OtherCA: other.PEM(), Port: listener.Addr().(*net.TCPAddr).Port, Dead: dead, ended: make(chan struct{}),
		server: &http.Server{Handler: http.HandlerFunc(serve), TLSConfig: pki.ServerConfig(pair), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)},
	}
	go func() {
		defer close(b.ended)
		_ = b.server.ServeTLS(listener, "", "") // returns after close
	}()
	return b, nil
}

func (b *backend) close() {
	_ = b.server.Close()
	<-b.ended
}

// serve selects the handler by the path: discovery, an echo, a tunnel, or a response by its name.
func serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server-Group", group)
	root, below, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
	version, rest, _ := strings.Cut(below, "/")
	resource := rest
	if of, name, ok := strings.Cut(strings.TrimPrefix(rest, "namespaces/"), "/"); ok && strings.HasPrefix(rest, "namespaces/") {
		resource, _ = name, of
	}
	resource, name, _ := strings.Cut(resource, "/")
	switch {
	case r.URL.Path == "/apis":
		documents(w, r)
	case strings.HasPrefix(r.URL.Path, "/openapi/"):
		openAPI(w, r)
	case rest == "" && strings.HasPrefix(root, "answers-"):
		answers(w, r, strings.TrimPrefix(strings.TrimSuffix(root, "."+group), "answers-"))
	case rest == "":
		say(w, http.StatusOK, resourceList(root+"/"+version))
	case resource == "answers":
		answers(w, r, name)
	case resource == "tunnels":
		tunnel(w, r, name)
	case r.URL.Query().Get("watch") == "true":
		watch(w)
	default:
		echo(w, r)
	}
}

func resourceList(groupVersion string) map[string]any {
	of := func(name, kind string, namespaced bool) map[string]any {
		return map[string]any{"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": []string{"create", "get", "list"}}
	}
	return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": []any{
		of("echoes", "Echo", true), of("answers", "Answer", false), of("tunnels", "Tunnel", false),
	}}
}

// documents serves the list of groups that only the front door requests. It does not support aggregated discovery.
func documents(w http.ResponseWriter, _ *http.Request) {
	say(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
}

// openAPI serves a document with one path and one schema.
func openAPI(w http.ResponseWriter, r *http.Request) {
	const path = "/apis/" + group + "/v1"
	info := map[string]any{"title": "differential", "version": "v1"}
	schema := map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}}
	operation := map[string]any{"get": map[string]any{"operationId": "getDifferential", "responses": map[string]any{"200": map[string]any{"description": "OK"}}}}
	paths := map[string]any{path + "/": operation}
	switch r.URL.Path {
	case "/openapi/v3":
		say(w, http.StatusOK, map[string]any{"paths": map[string]any{path[1:]: map[string]any{"serverRelativeURL": "/openapi/v3" + path + "?hash=ABC"}}})
	case "/openapi/v3" + path:
		w.Header().Set("ETag", `"ABC"`)
		if r.URL.Query().Get("hash") == "ABC" {
			w.Header().Set("Cache-Control", "public, immutable")
		}
		say(w, http.StatusOK, map[string]any{"openapi": "3.0.0", "info": info, "paths": paths, "components": map[string]any{"schemas": map[string]any{"com.example.Echo": schema}}})
	case "/openapi/v2":
		say(w, http.StatusOK, map[string]any{"swagger": "2.0", "info": info, "paths": paths, "definitions": map[string]any{"com.example.Echo": schema}})
	default:
		http.NotFound(w, r)
	}
}

// echo responds with a description of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, largest))
	if err != nil {
		say(w, http.StatusBadRequest, map[string]any{"error": "the body broke off"})
		return
	}
	said := map[string]any{
		"kind": "Echo", "apiVersion": group + "/v1", "method": r.Method, "target": r.RequestURI, "host": r.Host, "headers": r.Header,
		"protocol": r.Proto, "length": len(body), "contentLength": r.ContentLength,
	}
	if len(body) < 1<<10 {
		said["text"] = string(body)
	}
	if len(r.Trailer) > 0 {
		said["trailers"] = r.Trailer
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		said["certificate"] = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	say(w, http.StatusOK, said)
}

func say(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: maps of strings always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	_, _ = w.Write(data) // the client may be gone
}

// watch sends two events and flushes each.
func watch(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	for i, of := range []string{"ADDED", "MODIFIED"} {
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":{"kind":"Echo","apiVersion":"%s/v1","metadata":{"name":"a","resourceVersion":"%d"}}}`+"\n", of, group, i+1)
		w.(http.Flusher).Flush()
	}
}

// answers sends a valid or invalid response of an extension server, selected by name. A number selects a Status with
// that code.
func answers(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	text := func(code int, body string) {
		h.Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body) // the client may be gone
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

// tunnel switches protocols, or sends the response with the given name. After the switch it echoes the data.
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
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil { // http.Server.Close does not close hijacked connections
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

// headOf returns the head of an upgrade request.
func headOf(r *http.Request) string {
	var b strings.Builder
	b.WriteString(r.Method + " " + r.RequestURI + "\nHost: " + r.Host + "\n")
	_ = r.Header.WriteSubset(&b, map[string]bool{"Audit-Id": true})
	return b.String()
}
