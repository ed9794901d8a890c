package declared

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portico.dev/internal/extserver/httpclient"
	"portico.dev/internal/extserver/prometheus"
)

// secure starts a TLS server. It returns the URL and the file of the CA certificate.
func secure(t *testing.T, handler http.HandlerFunc) (url, caFile string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	caFile = filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	return server.URL, caFile
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func web(url, caFile string) *HTTP {
	return &HTTP{URL: url, Access: httpclient.Config{TLS: httpclient.TLS{CAFile: caFile}}, Format: "json",
		Timeout: 10 * time.Second, MaxBytes: MaxBytes}
}

func TestHTTPSSourceSendsHeaderFromFile(t *testing.T) {
	url, ca := secure(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"key": %q, "accept": %q, "big": 9007199254740993, "half": 0.5}`, r.Header.Get("X-Key"), r.Header.Get("Accept"))
	})
	key := filepath.Join(t.TempDir(), "key")
	h := web(url, ca)
	h.HeaderFiles = map[string]string{"X-Key": key}
	defer h.Close()
	if _, err := h.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
		t.Fatalf("Fetch with a missing header file: error = %v, want an error that contains %q", err, key)
	}
	for _, value := range []string{"first", "second"} { // A rotated key takes effect without a restart.
		writeFile(t, key, value+"\n")
		got, err := h.Fetch(t.Context())
		must(t, err)
		want := map[string]any{"key": value, "accept": "application/json, */*;q=0.5", "big": int64(9007199254740993), "half": 0.5}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestHTTPFailuresReturnErrors(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	url, ca := secure(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/large":
			_, _ = io.WriteString(w, `["`+strings.Repeat("x", 4096)+`"]`)
		case "/slow":
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // Prevents an empty response to a client that reads late.
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "come back later")
		case "/two":
			_, _ = io.WriteString(w, `{} {}`)
		default:
			_, _ = io.WriteString(w, `<html>`)
		}
	})
	for _, c := range []struct {
		situation, path, want string
		change                func(*HTTP)
	}{
		{"redirect to another host", "/redirect", "redirects to", nil},
		{"answer beyond the bound", "/large", "too large", func(h *HTTP) { h.MaxBytes = 1024 }},
		{"server that hangs", "/slow", "deadline", func(h *HTTP) { h.Timeout = 50 * time.Millisecond }},
		{"server that refuses", "/broken", `HTTP 503: "come back later"`, nil},
		{"more than one value", "/two", "more behind the first", nil},
		{"not JSON", "/html", `begins with "<html>"`, nil},
		{"certificate of a stranger", "/", "certificate", func(h *HTTP) { h.Access.TLS = httpclient.TLS{} }},
		{"CA file that is not there", "/", "/nowhere", func(h *HTTP) { h.Access.CAFile = "/nowhere" }},
	} {
		t.Run(c.situation, func(t *testing.T) {
			h := web(url+c.path, ca)
			defer h.Close()
			if c.change != nil {
				c.change(h)
			}
			if _, err := h.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
	if elsewhere > 0 {
		t.Errorf("redirect target received %d requests, want 0", elsewhere)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	jsonFile, yamlFile, pipe := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.yaml"), filepath.Join(dir, "pipe")
	writeFile(t, jsonFile, `[{"id": 1}]`)
	writeFile(t, yamlFile, "id: 1\n---\nid: 2\n---\n")
	must(t, syscall.Mkfifo(pipe, 0o600))
	got, err := (&File{Path: jsonFile, Format: "json", MaxBytes: 100}).Fetch(t.Context())
	must(t, err)
	if want := []any{map[string]any{"id": int64(1)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("Fetch of a JSON file = %v, want %v", got, want)
	}
	got, err = (&File{Path: yamlFile, Format: "yaml", MaxBytes: 100}).Fetch(t.Context())
	must(t, err)
	if want := []any{map[string]any{"id": int64(1)}, map[string]any{"id": int64(2)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("Fetch of a YAML file = %v, want %v", got, want)
	}
	for situation, f := range map[string]*File{
		"not a regular file": {Path: pipe, MaxBytes: 100},
		"too large":          {Path: jsonFile, MaxBytes: 3},
		"no such file":       {Path: dir + "/none", MaxBytes: 100},
		"not JSON":           {Path: yamlFile, Format: "json", MaxBytes: 100},
	} {
		if _, err := f.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), situation) {
			t.Errorf("Fetch error = %v, want an error that contains %q", err, situation)
		}
	}
}

func TestPrometheus(t *testing.T) {
	url, ca := secure(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/api/v1/query" || r.FormValue("query") != "sum by (q) (depth)" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"q":"a"},"value":[1700000000.5,"3"]},{"metric":{"q":"b"},"value":[1700000000.5,"NaN"]}]}}`)
	})
	p := &Prometheus{Query: "sum by (q) (depth)", Server: prometheus.Config{URL: url + "/prom", Timeout: 10 * time.Second,
		Access: httpclient.Config{TLS: httpclient.TLS{CAFile: ca}}}}
	defer p.Close()
	got, err := p.Fetch(t.Context())
	must(t, err)
	want := []any{
		map[string]any{"metric": map[string]any{"q": "a"}, "timestamp": "2023-11-14T22:13:20.5Z", "value": 3.0},
		map[string]any{"metric": map[string]any{"q": "b"}, "timestamp": "2023-11-14T22:13:20.5Z"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func script(t *testing.T, text string) *Exec {
	t.Helper()
	return &Exec{Argv: []string{"/bin/sh", "-c", text}, Format: "json", Timeout: 20 * time.Second, MaxBytes: 1 << 10}
}

func TestExec(t *testing.T) {
	t.Setenv("SECRET", "of the server")
	e := script(t, `printf '{"secret": "%s", "team": "%s", "at": "%s"}' "$SECRET" "$TEAM" "$PWD"`)
	e.Env = map[string]string{"TEAM": "blue; echo"}
	got, err := e.Fetch(t.Context())
	must(t, err)
	if want := map[string]any{"secret": "", "team": "blue; echo", "at": "/"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Fetch of the command = %v, want %v", got, want)
	}
	for want, text := range map[string]string{
		`exit status 3: "no queue server"`: "echo no queue server >&2; exit 3",
		"more than 1024 bytes":             "while :; do echo 0123456789012345678901234567890123456789; done",
		"not JSON":                         "echo hello",
	} {
		if _, err := script(t, text).Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Fetch of the command %q: error = %v, want an error that contains %q", text, err, want)
		}
	}
	if _, err := (&Exec{Argv: []string{"/no/such/program"}, Timeout: time.Second}).Fetch(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Fetch of a missing program: error = %v, want os.ErrNotExist", err)
	}
}

func TestExecKillsProcessGroupAtDeadline(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	e := script(t, "sleep 1000 & echo $! > "+file+"; wait")
	e.Timeout = 3 * time.Second // A busy machine needs this long to start a shell.
	if _, err := e.Fetch(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Fetch of a command that hangs: error = %v, want context.DeadlineExceeded", err)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for running(pid) {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("child process %d of the command still runs after the deadline, want it killed", pid)
		}
	}
}

// running treats a zombie process as stopped.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestProcfsListsProcessesOfThisMachine(t *testing.T) {
	for _, table := range TableNames() {
		got, err := (&Procfs{Table: table}).Fetch(t.Context())
		must(t, err)
		items := got.([]any)
		if len(items) == 0 {
			t.Errorf("table %s has no items, want at least one", table)
		}
		for _, it := range items {
			name := strings.TrimPrefix(Tables[table], ".")
			if text, ok := it.(map[string]any)[name].(string); !ok || text == "" {
				t.Errorf("item of the table %s = %v, want the field %s", table, it, name)
			}
		}
	}
	got, err := (&Procfs{Table: "processes"}).Fetch(t.Context())
	must(t, err)
	for _, it := range got.([]any) {
		if p := it.(map[string]any); p["pid"] == strconv.Itoa(os.Getpid()) {
			if p["residentBytes"].(int64) <= 0 || p["uid"] != int64(os.Getuid()) || p["startTime"] == nil {
				t.Errorf("entry of this process = %v, want its memory, user and start time", p)
			}
			return
		}
	}
	t.Errorf("table processes lacks process %d, want an entry of this process", os.Getpid())
}
