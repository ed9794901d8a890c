package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/respond"
	"portico.dev/pkg/extension"
)

// Letter is the resource that the extension server of the test hosts.
type Letter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

type noLetters struct{}

func (noLetters) List(context.Context, extension.Query) ([]Letter, error) { return nil, nil }

// One request has one Audit-ID: in the response, in the audit logs of the front door and of the extension server, in its access
// log, and, when the extension server is dead, in the Status.
func TestAuditIDIsTheSameOnAllHops(t *testing.T) {
	t.Parallel()
	const path = "/apis/post.example.com/v1/letters"
	dir := t.TempDir()
	frontLog, backLog := filepath.Join(dir, "front.log"), filepath.Join(dir, "back.log")
	frontAccess, backAccess := filepath.Join(dir, "front-access.log"), filepath.Join(dir, "back-access.log")
	front, stopFront := open(t, filepath.Join(dir, "data"), func(c *Config) {
		c.Audit.LogPath, c.Audit.LogMode = frontLog, "blocking"
		c.AccessLog, c.AccessLogFile.Path = true, frontAccess
	})

	back, err := extension.NewServer(extension.Options{
		Client: front, AuthenticationClient: front, AuthorizationClient: front, BindAddress: "127.0.0.1", Register: true,
		AccessLog: true, AccessLogPath: backAccess, AuditLogPath: backLog,
	}, extension.Of(extension.Definition[Letter]{Group: "post.example.com", Version: "v1", Plural: "letters", Kind: "Letter"}, noLetters{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- back.Run(ctx) }()
	select {
	case <-back.Ready():
	case err := <-ended:
		t.Fatalf("the extension server ended before it was ready: %v, want ready", err)
	case <-time.After(time.Minute):
		t.Fatal("the extension server was not ready within a minute, want ready")
	}
	awaitReadiness(t, front, path, http.StatusOK, "LetterList")

	var served []string // audit IDs
	for _, offered := range []string{"", "trace:7/1", strings.Repeat("y", 64)} {
		response, _ := withAuditID(t, front, front.Host+path, offered)
		ids := response.Header["Audit-Id"]
		if response.StatusCode != http.StatusOK || len(ids) != 1 || offered != "" && ids[0] != offered || ids[0] == "" {
			t.Fatalf("GET with the Audit-Id %q = %s with the Audit-Ids %q, want 200 and one id, the offered one if any",
				offered, response.Status, ids)
		}
		awaitEvent(t, frontLog, ids[0], 200)
		if e := awaitEvent(t, backLog, ids[0], 200); e.User.Username == "" || e.ObjectRef == nil || e.ObjectRef.Resource != "letters" {
			t.Errorf("event in the audit log of the extension server = %+v, want one with a user and the resource letters", e)
		}
		served = append(served, ids[0])
	}

	// A client that bypasses the front door cannot give its request the id of another one.
	direct := rest.CopyConfig(front)
	direct.Host, direct.CAData, direct.CAFile = "https://"+back.Address(), back.CABundle(), ""
	response, _ := withAuditID(t, direct, direct.Host+path, "forged")
	if ids := response.Header["Audit-Id"]; response.StatusCode != http.StatusOK || len(ids) != 1 || ids[0] == "forged" {
		t.Errorf("GET of the extension server with a forged Audit-Id = %s with the Audit-Ids %q, want 200 and one other id", response.Status, ids)
	}

	// The server stops. Its Status has the id, both when the request finds out and when the front door knows already.
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the extension server ended with the error %v, want no error", err)
	}
	for _, offered := range []string{"to-the-dead", "to-the-dead-again", ""} {
		response, body := withAuditID(t, front, front.Host+path, offered)
		ids := response.Header["Audit-Id"]
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil || response.StatusCode != http.StatusServiceUnavailable || len(ids) != 1 ||
			offered != "" && ids[0] != offered || status.Details == nil {
			t.Fatalf("GET with the Audit-Id %q of a stopped server = %s with the Audit-Ids %q, %v: %s; want 503, one id and a Status with details",
				offered, response.Status, ids, err, body)
		}
		if last := status.Details.Causes[len(status.Details.Causes)-1]; last.Type != respond.CauseAuditID || last.Message != ids[0] || strings.Contains(status.Message, ids[0]) {
			t.Errorf("Status of a stopped server = %s, want the Audit-ID in the last cause and not in the message", body)
		}
		awaitEvent(t, frontLog, ids[0], 503)
	}
	if text, err := os.ReadFile(backLog); err != nil || bytes.Contains(text, []byte("forged")) || bytes.Contains(text, []byte("to-the-dead")) {
		t.Errorf("audit log of the extension server = %v\n%s\nwant no error and no rejected Audit-ID", err, text)
	}
	if err := stopFront(); err != nil {
		t.Errorf("stopping the front door failed: %v, want no error", err)
	}
	for _, file := range []string{frontAccess, backAccess} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range served {
			if n := bytes.Count(text, []byte(`"audit-id":"`+id+`"`)); n != 1 {
				t.Errorf("%s has %d lines with the Audit-ID %s, want 1", filepath.Base(file), n, id)
			}
		}
	}
}

func withAuditID(t *testing.T, config *rest.Config, url, id string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		r.Header.Set("Audit-Id", id)
	}
	return do(t, config, r)
}

// awaitEvent is the event of a request in an audit log, which is written when its client may have the response already.
func awaitEvent(t *testing.T, file, id string, code int32) auditv1.Event {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found []auditv1.Event
		for line := range bytes.Lines(text) {
			var e auditv1.Event
			if json.Unmarshal(line, &e) == nil && string(e.AuditID) == id {
				found = append(found, e)
			}
		}
		if len(found) == 1 && found[0].ResponseStatus != nil && found[0].ResponseStatus.Code == code {
			return found[0]
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: events of %s: %+v, want one with code %d", filepath.Base(file), id, found, code)
		}
	}
}
