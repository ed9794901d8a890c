package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/rogpeppe/go-internal/testscript"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/pki"
)

// webhook is the command webhook: it sets two variables to the port of an admission webhook on this machine, and to the
// caBundle that its certificate chains to. The certificate is for 127.0.0.1 and for the Services named after them. /label
// adds a label, /deny refuses, /hang never answers.
func webhook(ts *testscript.TestScript, args []string) {
	ca, err := pki.NewAuthority("webhooks")
	ts.Check(err)
	cert, key, err := ca.Issue(pki.Leaf{
		CommonName: "webhook", Server: true, DNSNames: args[2:], IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	ts.Check(err)
	pair, err := pki.StaticKeyPair(cert, key)
	ts.Check(err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(review))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener = tls.NewListener(s.Listener, pki.ServerConfig(pair))
	s.Start()
	ts.Defer(s.Close)
	ts.Setenv(args[0], portOf(s.Listener))
	ts.Setenv(args[1], base64.StdEncoding.EncodeToString(ca.PEM()))
}

func review(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch r.URL.Path {
	case "/label":
		kind := admissionv1.PatchTypeJSONPatch
		answer.PatchType, answer.Patch = &kind, []byte(`[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`)
	case "/deny":
		answer.Allowed, answer.Result = false, &metav1.Status{Message: "not on my watch"}
	case "/hang":
		<-r.Context().Done()
		return
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // fails if the client has disconnected
}
