package faulty

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// perConnection is the number of requests after which GoAwayStorm closes a connection.
	perConnection = 10
	// dripEvery is the pause of SlowDrip after each byte.
	dripEvery = 200 * time.Millisecond
	// slowDelay is the delay of Slow.
	slowDelay = 2 * time.Second
	// maxBody is far larger than any object here.
	maxBody = 1 << 20
)

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serving.Add(1)
	s.served.Add(1)
	defer s.serving.Add(-1)
	s.noteClient(r)
	if s.cfg.Observe != nil {
		s.cfg.Observe(r)
	}
	fault, turn := s.now()
	switch fault {
	case Hang:
		select {
		case <-turn:
		case <-r.Context().Done():
			return
		}
	case Slow:
		timer := time.NewTimer(slowDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-turn:
		case <-r.Context().Done():
			return
		}
	case SlowDrip:
		w = &drip{ResponseWriter: w, request: r, turn: turn}
	case GoAwayStorm:
		if n, ok := r.Context().Value(requestCount{}).(*atomic.Int64); ok && n.Add(1)%perConnection == 0 {
			w.Header().Set("Connection", "close") // net/http's HTTP/2 server then sends GOAWAY
		}
	case GarbageDiscovery:
		if isDiscovery(r.URL.Path) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html><body><h1>It works!</h1></body></html>\n")
			return
		}
	case HugeOpenAPI:
		if strings.HasPrefix(r.URL.Path, "/openapi/") {
			endless(w, r, turn)
			return
		}
	}
	s.route(w, r, fault)
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, fault Fault) {
	if s.cfg.Handler != nil {
		s.cfg.Handler.ServeHTTP(w, r)
		return
	}
	path := strings.Trim(r.URL.Path, "/")
	version := "apis/" + s.cfg.Group + "/v1"
	switch {
	case isDiscovery(r.URL.Path):
		s.discovery(w, r, path, fault)
	case strings.HasPrefix(path, "openapi/"):
		s.openapi(w, r)
	case path == "healthz", path == "livez", path == "readyz":
		_, _ = io.WriteString(w, "ok")
	case strings.HasPrefix(path, version+"/"):
		switch fault {
		case ResetMidBody:
			half(w)
			return
		case Errors:
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: the database is not reachable")
			return
		}
		s.resource(w, r, strings.Split(strings.TrimPrefix(path, version+"/"), "/"))
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	}
}

// isDiscovery reports whether path is /api, /apis, /apis/<group> or /apis/<group>/<version>.
func isDiscovery(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "apis" && len(parts) <= 3 || parts[0] == "api" && len(parts) <= 2
}

// half announces a body and aborts in the middle of it.
func half(w http.ResponseWriter) {
	body := `{"kind":"WidgetList","apiVersion":"v1","metadata":{},"items":[]}`
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body[:len(body)/2])
	_ = http.NewResponseController(w).Flush() // otherwise the client sees only the reset
	panic(http.ErrAbortHandler)
}

// endless sends a document that never ends, as fast as the client reads it.
func endless(w http.ResponseWriter, r *http.Request, mended <-chan struct{}) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"openapi":"3.0.0","info":{"title":"`)
	block := strings.Repeat("x", 64<<10)
	for {
		select {
		case <-mended:
			return
		case <-r.Context().Done():
			return
		default:
		}
		if _, err := io.WriteString(w, block); err != nil {
			return
		}
	}
}

// drip sends a body byte by byte until the fault is over.
type drip struct {
	http.ResponseWriter
	request *http.Request
	turn    <-chan struct{}
}

func (d *drip) Write(p []byte) (int, error) {
	flush := http.NewResponseController(d.ResponseWriter).Flush
	for i := range p {
		select {
		case <-d.turn:
			n, err := d.ResponseWriter.Write(p[i:])
			return i + n, err
		case <-d.request.Context().Done():
			return i, d.request.Context().Err()
		case <-time.After(dripEvery):
		}
		if _, err := d.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		if err := flush(); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func (d *drip) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func answer(w http.ResponseWriter, code int, v any) { write(w, code, "application/json", v) }

func write(w http.ResponseWriter, code int, mediaType string, v any) {
	w.Header().Set("Content-Type", mediaType)
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
