package declared

import (
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/extserver/httpclient"
	"portico.dev/internal/extserver/prometheus"
)

const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = 5 * time.Minute
	maxBytesLimit  = 256 << 20
)

// sourceKinds are the fields of a source, exactly one of which must be set.
var sourceKinds = []string{"http", "file", "prometheus", "procfs", "exec"}

func (r reader) source(f *form, d *definition) {
	in := f.form("source")
	if !in.present() {
		f.need("source", "source: {file: {path: /var/lib/queues.json}}")
		return
	}
	given := slices.DeleteFunc(slices.Clone(sourceKinds), func(kind string) bool { return in.value(kind) == nil })
	in.noteUnknownFields()
	if len(given) != 1 {
		if len(given) == 0 && len(in.keys) > 0 {
			return // an unknown field, which has been noted
		}
		in.notes.at(in.node, in.path, "must have exactly one of %s", sentence(sourceKinds))
		return
	}
	d.originKind = given[0]
	s := in.form(given[0])
	switch given[0] {
	case "http":
		d.origin, d.timeout = readHTTP(s)
	case "file":
		d.origin, d.timeout = readFileSource(s)
	case "prometheus":
		d.origin, d.timeout = readPrometheus(s)
	case "procfs":
		d.origin, d.timeout = r.procfs(s)
	case "exec":
		d.origin, d.timeout = readExec(s)
		if !r.allowExec {
			in.wrong("exec", "running commands is off; start the server with --allow-exec-sources if whoever writes this file may run commands as the server")
		}
	}
	s.noteUnknownFields()
}

func (f *form) timeout() time.Duration {
	return f.duration("timeout", defaultTimeout, 10*time.Millisecond, maxTimeout)
}

func (f *form) maxBytes() int64 { return f.integer("maxBytes", MaxBytes, 1, maxBytesLimit) }

func (f *form) format(path string) string {
	if ext := filepath.Ext(path); f.value("format") == nil && (ext == ".yaml" || ext == ".yml") {
		return "yaml"
	}
	return f.choice("format", "json", "yaml")
}

func readHTTP(f *form) (origin, time.Duration) {
	h := &HTTP{URL: f.url(), Timeout: f.timeout(), MaxBytes: f.maxBytes(), Access: f.access(), HeaderFiles: map[string]string{}}
	h.Format = f.format("")
	f.entries("headersFrom", func(in *form, name string) {
		h.HeaderFiles[name] = in.absolute(name)
		in.headerName(name)
		if h.Access.Header.Get(name) != "" {
			in.wrong(name, "is also given in headers")
		}
	})
	return h, h.Timeout
}

func readPrometheus(f *form) (origin, time.Duration) {
	p := &Prometheus{Query: f.text("query"), Server: prometheus.Config{
		URL: f.url(), Timeout: f.timeout(), MaxBytes: f.maxBytes(), Access: f.access()}}
	f.need("query", "'sum by (queue) (queue_depth)'")
	return p, p.Server.Timeout
}

func readFileSource(f *form) (origin, time.Duration) {
	f.need("path", "/var/lib/queues.json")
	path := f.absolute("path")
	return &File{Path: path, Format: f.format(path), MaxBytes: f.maxBytes()}, defaultTimeout
}

func (r reader) procfs(f *form) (origin, time.Duration) {
	f.need("table", sentence(TableNames()))
	p := &Procfs{Root: r.procRoot}
	if f.value("table") != nil {
		p.Table = f.choice("table", TableNames()...)
	}
	return p, defaultTimeout
}

func readExec(f *form) (origin, time.Duration) {
	f.need("command", "[/usr/local/bin/list-queues, --json]")
	e := &Exec{Argv: f.texts("command"), Env: map[string]string{}, Format: f.format(""), Timeout: f.timeout(), MaxBytes: f.maxBytes()}
	switch {
	case f.value("command") != nil && len(e.Argv) == 0:
		f.wrong("command", "must name a program")
	case len(e.Argv) > 0 && e.Argv[0] != "" && !filepath.IsAbs(e.Argv[0]):
		f.wrong("command", "%q: the program must be an absolute path; there is no shell and no search path", e.Argv[0])
	}
	f.entries("env", func(in *form, name string) {
		e.Env[name] = in.text(name)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(e.Env[name], "\x00") {
			in.wrong(name, "%q: is no name of an environment variable", name)
		}
	})
	return e, e.Timeout
}

// url parses the URL of a server. It rejects credentials, because URLs appear in errors and logs.
func (f *form) url() string {
	f.need("url", "http://127.0.0.1:9000/queues")
	text := f.text("url")
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		f.wrong("url", "%q: must be an address such as https://queues.example.com/api", text)
	case u.User != nil:
		f.wrong("url", "must not hold a password: use bearerTokenFile or headersFrom")
	}
	return text
}

// access parses the TLS settings and credentials for a server.
func (f *form) access() httpclient.Config {
	c := httpclient.Config{Header: http.Header{}, BearerTokenFile: f.absolute("bearerTokenFile"), TLS: httpclient.TLS{
		CAFile: f.absolute("caFile"), CertFile: f.absolute("certFile"), KeyFile: f.absolute("keyFile"),
		ServerName: f.text("serverName"), Insecure: f.boolean("insecureSkipTLSVerify"),
	}}
	if (c.CertFile == "") != (c.KeyFile == "") {
		f.wrong("certFile", "certFile and keyFile go together")
	}
	if c.Insecure && c.CAFile != "" {
		f.wrong("insecureSkipTLSVerify", "cannot be set together with caFile: one of them would be ignored")
	}
	f.entries("headers", func(in *form, name string) {
		value := in.text(name)
		in.headerName(name)
		if !httpguts.ValidHeaderFieldValue(value) {
			in.wrong(name, "holds what no header may hold")
		}
		if strings.EqualFold(name, "Authorization") {
			in.wrong(name, "secrets do not belong into this file: use bearerTokenFile or headersFrom")
		}
		c.Header.Set(name, value)
	})
	return c
}

func (f *form) headerName(name string) {
	if !httpguts.ValidHeaderFieldName(name) || strings.EqualFold(name, "Host") {
		f.wrong(name, "%q: is no header that can be set", name)
	}
}

// absolute parses the path of a file. Relative paths are rejected, because they would depend on the working directory.
func (f *form) absolute(name string) string {
	path := f.text(name)
	if path != "" && !filepath.IsAbs(path) {
		f.wrong(name, "%q: must be an absolute path", path)
	}
	return path
}
