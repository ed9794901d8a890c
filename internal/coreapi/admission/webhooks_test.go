package admission

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// webhookClient returns the client with which k8s.io/apiserver calls webhooks.
func webhookClient(t *testing.T, host string) *http.Client {
	t.Helper()
	config, err := Webhooks{}.dialled(&rest.Config{Host: host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestC13WebhookRedirectsAreNotFollowed(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		hook := httptest.NewServer(http.RedirectHandler(other.URL, code))
		_, err := webhookClient(t, hook.URL).Post(hook.URL, "application/json", strings.NewReader("{}"))
		if err == nil || !strings.Contains(err.Error(), "redirect") || asked {
			t.Errorf("redirect with %d: error = %v, followed = %v, want an error about the redirect and false", code, err, asked)
		}
		hook.Close()
	}
}

func TestC13UnboundedWebhookResponseIsCutOff(t *testing.T) {
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer hook.Close()
	answer, err := webhookClient(t, hook.URL).Post(hook.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil || !strings.Contains(err.Error(), "more than") || n != maxWebhookResponse {
		t.Errorf("read %d bytes, error = %v, want %d bytes and an error that contains \"more than\"", n, err, maxWebhookResponse)
	}
}
