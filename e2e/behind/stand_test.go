//go:build incumbent

package behind

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// prometheus starts a server with two series and Prometheus's API.
func prometheus(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, name, labels, value := r.FormValue("match[]")+r.FormValue("query"), "", "", ""
		switch {
		case strings.Contains(asked, "queue_depth"):
			name, labels, value = "queue_depth", `"namespace":"shop","queue":"mail"`, "12"
		case strings.Contains(asked, "tickets"):
			name, labels, value = "tickets", `"namespace":"shop"`, "5"
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case name == "":
			_, _ = io.WriteString(w, `{"status":"success","data":[]}`)
		case strings.HasSuffix(r.URL.Path, "/series"):
			fmt.Fprintf(w, `{"status":"success","data":[{"__name__":%q,%s}]}`, name, labels)
		default:
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":%q,%s},"value":[%d,%q]}]}}`, name, labels, time.Now().Unix(), value)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// readAll reads an answer, of which nothing here is longer than this.
func readAll(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, 4<<20))
	return string(data), err
}
