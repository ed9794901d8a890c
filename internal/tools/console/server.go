package console

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"portico.dev/internal/httpengine/httpmsg"
)

//go:embed page/index.html page/console.css page/console.js page/charts.js page/icon.svg
var page embed.FS

// pageFiles maps the static files of the page to their media types. They contain no data of the cluster and need no
// session.
var pageFiles = map[string]string{
	"": "text/html; charset=utf-8", "console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8",
	"charts.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}

const (
	// maxRequest bounds the body of a POST, and maxNames the number of drills in it.
	maxRequest = 16 << 10
	maxNames   = 64
	// policy permits the page to load its own files and to connect to its own server only. Other pages cannot embed
	// it.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

func (c *Console) routes() http.Handler {
	m := http.NewServeMux()
	for name, kind := range pageFiles {
		m.HandleFunc("GET /"+name+end(name), c.file(name, kind))
		m.HandleFunc("GET "+c.guard.prefix+name+end(name), c.file(name, kind))
	}
	m.HandleFunc("POST /session", c.session)
	api := func(pattern string, h http.HandlerFunc) {
		method, path, _ := strings.Cut(pattern, " ")
		m.HandleFunc(method+" "+c.guard.prefix+"api/"+path, func(w http.ResponseWriter, r *http.Request) {
			if !c.guard.hasSession(r) {
				c.refuse(w, r, http.StatusUnauthorized, "this browser has no session: start the console again, and open the link that it prints")
				return
			}
			h(w, r)
		})
	}
	api("GET stream", c.stream)
	api("GET apiservices/{name}", c.serveDetail)
	api("GET runs/{id}", c.serveRun)
	api("POST doctor", c.postDoctor)
	api("POST drills", c.postDrills)
	api("POST runs/{id}/cancel", c.postCancel)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if code, why := c.guard.refuses(r); code != 0 {
			h.Set("Connection", "close")
			c.refuse(w, r, code, why)
			return
		}
		if c.guard.hasSession(r) {
			trust(r)
		} else {
			h.Set("Connection", "close")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		m.ServeHTTP(w, r)
	})
}

// end restricts the pattern of a directory to exact matches.
func end(name string) string {
	if name == "" {
		return "{$}"
	}
	return ""
}

func (c *Console) file(name, kind string) http.HandlerFunc {
	path := "page/" + name
	if name == "" {
		path = "page/index.html"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		content, err := page.ReadFile(path)
		if err != nil {
			c.refuse(w, r, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content)
	}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// trust marks the connection of a request with a session, so that connections without a session are closed first.
// Connections without a session end after one response.
func trust(r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		httpmsg.TrustConn(conn)
	}
}

// refusals counts the refused requests that are missing from the audit list.
type refusals struct {
	limit *rate.Limiter
	more  atomic.Int64
}

// refuse sends an error response. It records refused requests in the audit list up to a maximum rate, because they
// may be an attack and must not displace the other entries.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, code int, why string) {
	switch {
	case code == http.StatusNotFound:
	case c.refused.limit.AllowN(c.cfg.now(), 1):
		err := errors.New(why)
		if more := c.refused.more.Swap(0); more > 0 {
			err = fmt.Errorf("%s (%s refused since the last entry)", why, quantity(fmt.Sprint(more), "more request"))
		}
		c.audit.add("refused", quoted(r.Method+" "+r.URL.Path), err)
	default:
		c.refused.more.Add(1)
	}
	c.fail(w, code, why)
}

func (c *Console) fail(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}

func (c *Console) answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // the browser may have closed the connection
}

// session exchanges the token for the cookie.
func (c *Console) session(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if !c.decode(w, r, &in) {
		return
	}
	cookie, err := c.guard.exchange(in.Token)
	if err != nil {
		c.refuse(w, r, http.StatusUnauthorized, err.Error())
		return
	}
	c.audit.add("open the page", "", nil)
	http.SetCookie(w, cookie)
	c.answer(w, map[string]string{"path": c.guard.prefix})
}

// decode decodes the body of a POST. It sends an error response and returns false if that fails.
func (c *Console) decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		c.refuse(w, r, http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", maxRequest))
	case err != nil:
		c.refuse(w, r, http.StatusBadRequest, "the request is not JSON: "+err.Error())
	}
	return err == nil
}

func (c *Console) serveDetail(w http.ResponseWriter, r *http.Request) {
	d, ok := c.detail(r.Context(), r.PathValue("name"))
	if !ok {
		c.fail(w, http.StatusNotFound, "there is no APIService "+quoted(r.PathValue("name")))
		return
	}
	c.answer(w, d)
}

func (c *Console) serveRun(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	run, ok := c.jobs.result(id)
	if err != nil || !ok {
		c.fail(w, http.StatusNotFound, fmt.Sprintf("there is no run %s: the last %d are kept", quoted(r.PathValue("id")), maxJobs))
		return
	}
	c.answer(w, run)
}

// postDoctor runs the doctor. An automatic run is omitted if the APIService was examined a moment ago, and is postponed
// while another run is under way.
func (c *Console) postDoctor(w http.ResponseWriter, r *http.Request) {
	var in struct {
		APIService string `json:"apiService"`
		// Automatic is set if the page, and not the user, requests the run.
		Automatic bool `json:"automatic"`
	}
	if !c.decode(w, r, &in) {
		return
	}
	known := in.APIService == ""
	c.state.read(func() { known = known || c.state.objects[in.APIService] != nil })
	if !known {
		c.fail(w, http.StatusNotFound, "there is no APIService "+quoted(in.APIService))
		return
	}
	what, target := "run the doctor on", cmp.Or(in.APIService, allAPIServices)
	if in.Automatic {
		if id, ok := c.jobs.recent("doctor", target); ok {
			c.answer(w, map[string]int{"id": id})
			return
		}
		what = "automatically run the doctor on"
	}
	id, err := c.runDoctor(c.ctx, in.APIService)
	if in.Automatic && errors.Is(err, errBusy) {
		c.answer(w, map[string]bool{"busy": true}) // the page tries again
		return
	}
	c.began(w, what, target, id, err)
}

func (c *Console) postDrills(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Names []string `json:"names"`
	}
	if !c.decode(w, r, &in) {
		return
	}
	if len(in.Names) == 0 || len(in.Names) > maxNames {
		c.fail(w, http.StatusBadRequest, fmt.Sprintf("name from 1 to %d drills", maxNames))
		return
	}
	id, err := c.runDrills(c.ctx, in.Names)
	c.began(w, "run drills", fmt.Sprintf("%.200q", in.Names), id, err)
}

// began responds with the number of a run.
func (c *Console) began(w http.ResponseWriter, what, target string, id int, err error) {
	c.audit.add(what, target, err)
	switch {
	case errors.Is(err, errBusy):
		c.fail(w, http.StatusConflict, err.Error())
	case err != nil:
		c.fail(w, http.StatusBadRequest, err.Error())
	default:
		c.answer(w, map[string]int{"id": id})
	}
}

func (c *Console) postCancel(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err == nil {
		err = c.jobs.stop(id)
	}
	c.audit.add("cancel run", quoted(r.PathValue("id")), err)
	if err != nil {
		c.fail(w, http.StatusConflict, err.Error())
		return
	}
	c.answer(w, map[string]int{"id": id})
}
