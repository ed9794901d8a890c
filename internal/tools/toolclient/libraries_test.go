package toolclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// standardError returns the text that f writes to standard error.
func standardError(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = w
	f() // the texts here fit into the pipe
	os.Stderr = before
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLibrariesWriteOnlyWarningsOfServers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "v1 Endpoints is deprecated"`)
		w.Header().Add("Warning", `299 - "another \"quoted\" one"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[]}`)
	}))
	defer server.Close()
	t.Cleanup(func() {
		klog.ClearLogger()
		rest.SetDefaultWarningHandler(rest.WarningLogger{})
	})
	talk := func() {
		client, err := New(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := client.Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		klog.Warning("a warning of a library")
		klog.ErrorS(errors.New("cause"), "an error of a library")
		klog.FromContext(t.Context()).Error(errors.New("cause"), "a contextual error of a library")
		utilruntime.HandleErrorWithContext(t.Context(), errors.New("cause"), "a handled error of a library")
		klog.Flush()
	}
	if text := standardError(t, talk); !strings.Contains(text, "v1 Endpoints is deprecated") || strings.Count(text, "of a library") != 4 {
		t.Fatalf("default output of the libraries = %q, want all messages, so that this test can detect them", text)
	}
	var out bytes.Buffer
	if err := SetLibraryOutput(&out, 0); err != nil {
		t.Fatal(err)
	}
	if text := standardError(t, talk); text != "" {
		t.Errorf("standard error = %q, want nothing", text)
	}
	const want = "Warning: v1 Endpoints is deprecated\nWarning: another \"quoted\" one\n"
	if out.String() != want {
		t.Errorf("output = %q, want %q", out.String(), want)
	}
}

func TestVerbosityEnablesLogOfLibraries(t *testing.T) {
	t.Cleanup(func() {
		var level klog.Level
		if err := level.Set("0"); err != nil {
			t.Error(err)
		}
		rest.SetDefaultWarningHandler(rest.WarningLogger{})
	})
	if err := SetLibraryOutput(io.Discard, 6); err != nil {
		t.Fatal(err)
	}
	text := standardError(t, func() {
		klog.V(6).Info("six")
		klog.V(7).Info("seven")
		klog.Flush()
	})
	if !strings.Contains(text, "six") || strings.Contains(text, "seven") {
		t.Errorf("standard error = %q, want the message of level 6 and not of level 7", text)
	}
}
